"""How far a wrong program is right: outputs and one-device values whose relations hold.

This is proved, not guessed: the relations are those of the verifier's walk. It compares programs on
the way to a repair, and says from which one to start afresh.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from shardproof.synthesis.repair.edits import Edit, apply
from shardproof.synthesis.repair.propose import likely
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.provers.relate.facts import Fact, Related, describe
from shardproof.verifier.provers.relate.rules import Rules, initial, satisfied
from shardproof.verifier.provers.relate.walk import relate
from shardproof.verifier.provers.sequential import Sequential, as_terms
from shardproof.verifier.text.assemble import shared, well_formed


@dataclass(frozen=True)
class Held:
    """What holds of a distributed program."""

    outputs: frozenset[str]
    """Keys of the outputs that are as the contract asks."""
    values: frozenset[str]
    """One-device values of which the distributed program has the pieces."""

    @property
    def rank(self) -> tuple[int, int]:
        """More is further."""
        return len(self.outputs), len(self.values)

    def __str__(self) -> str:
        return f"{len(self.outputs)} outputs and {len(self.values)} values hold"


NOTHING = Held(frozenset(), frozenset())


@dataclass(frozen=True)
class Beside:
    """Two programs beside each other, up to where they part."""

    values: tuple[str, ...] = ()
    """`%y: %y as [4, 6] partial(sum)@tp`: of values of the ranks, in order, what of the one-device
    program they are pieces of; inside a repeated block `block/value`."""
    broken: str = ""
    """The first value of the ranks that is a piece of nothing that the one-device program computes,
    though what it is made of is."""
    theirs: str = ""
    """A value of the one-device program that it is made of."""


class Prefixes:
    """Judges how far distributed programs are right under one question."""

    def __init__(self, sequential: Program, contract: Contract) -> None:
        self.one: Sequential = as_terms(inline(well_formed(shared(sequential))))
        self.contract = contract
        self.names = {ref: name for name, ref in reversed(self.one.values.items())}

    def of(self, distributed: Program, but: Collection[str] = ()) -> Held:
        """What holds of a program; nothing where it is not well formed. `but` are output keys that
        numbers have shown to be wrong."""
        walked = self._walked(distributed)
        if walked is None:
            return NOTHING
        many, related, wrong = walked
        held = {output_key(o) for o in many.outputs} - set(wrong) - set(but)
        facts = (f for value in related.facts.values() for f in value)
        values = {self.names[f.ref] for f in facts if f.ref in self.names}
        return Held(frozenset(held), frozenset(values))

    def beside(self, distributed: Program) -> Beside:
        """Which value of the ranks is which piece of which one-device value, as proved."""
        walked = self._walked(distributed)
        if walked is None:
            return Beside()
        many, related, wrong = walked
        names = set(distributed.types)
        told = tuple(_told(self.one, related, lambda name: name in names))
        computed = set(self.one.values.values())
        facts = related.facts
        refused = {b.node.outputs[0] for b in related.breaks if not b.path}

        def parts(node: Node) -> bool:
            own = facts.get(node.outputs[0], [])
            return node.outputs[0] in refused or bool(
                own and not any(fact.ref in computed for fact in own)
            )

        node = next(filter(parts, many.nodes), None) if wrong else None
        if node is None:
            return Beside(told)
        near = [f.ref.id for name in node.inputs for f in facts.get(name, [])]
        theirs = next((self.one.known[i] for i in near if i in self.one.known), "")
        return Beside(told, node.outputs[0], theirs)

    def suggested(self, distributed: Program, most: int = 8) -> list[Edit]:
        """Single edits that the relations suggest, likeliest first; none is judged."""
        walked = self._walked(distributed)
        out: dict[Edit, None] = {}
        for edit in likely(self.one, walked[0], self.contract, *walked[1:]) if walked else ():
            if len(out) == most:
                break
            try:
                apply(distributed, edit)
            except IRError:
                continue
            out[edit] = None
        return list(out)

    def _walked(
        self, distributed: Program
    ) -> tuple[Program, Related, dict[str, list[Fact]]] | None:
        """The program in primitive ops, what it is related to, and the outputs that are wrong."""
        try:
            many = inline(well_formed(shared(distributed)))
        except IRError:
            return None
        known = initial(self.contract, self.one, many)
        related = relate(self.one, many, known, self.contract, Rules(many.mesh))
        return many, related, satisfied(self.one, many, related, self.contract)


def _told(
    one: Sequential, related: Related, shown: Callable[[str], bool], scope: str = ""
) -> Iterator[str]:
    for name, facts in related.facts.items():
        if facts and shown(name):
            yield f"%{scope}{name}: " + "; or ".join(describe(one, f) for f in facts[:2])
    for name, (scan, inner) in related.bodies.items():
        yield from _told(scan.inner, inner, lambda _: True, f"{scope}{name}/")


__all__ = ["NOTHING", "Beside", "Held", "Prefixes"]
