"""What single coordinates hold of a value, from what they hold of the values it is made of.

A sum over rows that are split waits for a sum over the ranks, and what one rank has of it is the
sum over its own rows. Plain rules say the first. The second is found by telling the operands apart,
back to where pieces are known, and taking the ops anew on each coordinate.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import mesh_dims
from shardproof.verifier.provers.relate.facts import Fact, Related

MAX_BACK = 24
"""Ops that are taken anew for one operand."""
Step = Callable[[Node], list[Fact]]
Split = Callable[[str, str], None]


@dataclass(frozen=True)
class Telling:
    """Takes ops of a program anew, on single coordinates of a mesh dim."""

    program: Program
    out: Related
    step: Step
    split: Split
    """Tells the pieces of a value along a mesh dim apart."""

    def back(self, value: str, name: str, left: list[int] | None = None) -> bool:
        """Find what single coordinates along a mesh dim hold of a value; whether something is new.

        Only ops that act on each rank alone are taken anew.
        """
        left = [MAX_BACK] if left is None else left
        facts = self.out.facts.get(value, [])
        if self._told(facts, name) or not any(name in f.layout.mentioned for f in facts):
            return False
        before = len(facts)
        self.split(value, name)
        node: Node | None = self.program.producers().get(value)
        local = node is not None and node.body is None and len(node.outputs) == 1
        if not self._told(facts, name) and node is not None and local and left[0] > 0:
            left[0] -= 1
            attrs = lookup(node.op).with_defaults(node.attrs)
            kind = lookup(node.op).kind
            turns = kind in ("collective", "movement") and "mesh_dim" in attrs
            if kind != "movement" and not (turns and name in mesh_dims(attrs["mesh_dim"])):
                for operand in dict.fromkeys(node.inputs):
                    self.back(operand, name, left)
                self._again(node, facts, name)
        return len(facts) > before

    def _again(self, node: Node, facts: list[Fact], name: str) -> None:
        breaks = len(self.out.breaks)
        seen = {(f.ref, f.layout, f.where) for f in facts}
        for fact in self.step(node):
            single = len(dict(fact.where).get(name, ())) == 1 and name not in fact.layout.mentioned
            if single and (fact.ref, fact.layout, fact.where) not in seen:
                seen.add((fact.ref, fact.layout, fact.where))
                facts.append(fact)
        del self.out.breaks[breaks:]

    def _told(self, facts: list[Fact], name: str) -> bool:
        return any(
            len(dict(f.where).get(name, ())) == 1
            and name not in f.layout.mentioned
            and not f.rule.startswith("joined:addend")
            for f in facts
        )
