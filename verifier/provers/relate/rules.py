"""What a walk starts from and must reach, by the contract, and the rules that it walks by."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, within
from shardproof.verifier.ops import facets
from shardproof.verifier.provers.placement import Operands, Placed, place
from shardproof.verifier.provers.relate.facts import Fact, Related
from shardproof.verifier.provers.sequential import Sequential
from shardproof.verifier.terms import Ref

MAX_WRITTEN = 20_000
"""Factors that are written to compare outputs in index notation, before the rest is left open."""


def initial(
    contract: Contract, sequential: Sequential, distributed: Program | None = None
) -> dict[str, list[Fact]]:
    """The facts the contract gives about the inputs, on the ranks that the program reads them."""
    places = {i.name: i.where for i in distributed.inputs} if distributed else {}
    return {
        name: [Fact(sequential.values[name], lay, (), "contract", places.get(name, EVERYWHERE))]
        for name, lay in contract.inputs.items()
    }


def satisfied(
    sequential: Sequential, distributed: Program, related: Related, contract: Contract
) -> dict[str, list[Fact]]:
    """For each output key that is not as the contract asks, the facts that were found."""
    wanted = {output_key(o): sequential.values[o.value] for o in sequential.program.outputs}
    wrong: dict[str, list[Fact]] = {}
    for out in distributed.outputs:
        key = output_key(out)
        if key not in wanted:
            continue
        facts = related.facts.get(out.value, [])
        layout = contract.outputs[key]
        where = contract.wanted.get(key, EVERYWHERE)
        if not any(_meets(f, wanted[key], layout, where) for f in facts):
            wrong[key] = facts
    return wrong


def _meets(fact: Fact, ref: Ref, layout: Layout, where: Where) -> bool:
    if not within(where, fact.where):
        return False
    if ref.coef == 0:
        whole_zero = fact.ref.coef == 0 and not fact.layout.partial
        return whole_zero and fact.layout.local_shape == layout.local_shape
    return fact.ref == ref and fact.layout == layout


def equal_otherwise(
    sequential: Sequential, contract: Contract, wrong: Mapping[str, Sequence[Fact]]
) -> dict[str, int] | None:
    """For every wrong output the index of a fact about a term that is written otherwise than the
    one asked for, and equal to it in index notation. None where an output has no such fact."""
    if not all(wrong.values()):
        return None
    keys, chosen = sequential.keys, dict[str, int]()
    keys.left = min(keys.left, MAX_WRITTEN)
    wanted = {output_key(o): sequential.values[o.value] for o in sequential.program.outputs}
    for key, facts in wrong.items():
        layout, where = contract.outputs[key], contract.wanted.get(key, EVERYWHERE)
        for index, fact in enumerate(facts):
            fits = fact.layout == layout and within(where, fact.where)
            if not fits:
                continue
            ref, want = fact.ref, wanted[key]
            if keys.same(ref, want) or sequential.equal_over_known(ref, want):
                chosen[key] = index
                break
        if key not in chosen:
            return None
    return chosen


class Rules:
    """Placement rules with their results remembered: equal layers cost one application each."""

    def __init__(self, mesh: Mesh, wide: bool = False, sharing: bool = False) -> None:
        self.mesh = mesh
        self.sharing = sharing or wide
        """Whether what all ranks hold alike may be read as shares of a sum."""
        self.wide = wide
        """Whether the walk may use the ways of `verifier/provers/relate/strategies.py` too."""
        self.pieces = True
        """Whether these tell pieces apart beside other readings, or where there are none alone."""
        self._memo: dict[Any, list[Placed] | Refused] = {}
        self.inductions: dict[Hashable, Any] = {}
        """Repeated blocks that were related, by all that it depends on."""
        self.shared = False
        """Whether the walk met what `sharing` reads, or would have read, as shares of a sum."""
        self.peeling = False
        """A walk may end where a block is found that has to be cut: it starts again after that."""
        self.applied = 0
        self.reused = 0

    def place(
        self,
        node: Node,
        layouts: tuple[Layout, ...],
        zeros: frozenset[int],
        known: frozenset[tuple[int, ...]] = frozenset(),
    ) -> list[Placed]:
        """What the op's rule says of operands laid out so; `known` as `Operands` has it.

        Raises:
            Refused: the rule says nothing.
        """
        op = lookup(node.op)
        attrs = tuple(sorted(op.with_defaults(node.attrs).items()))
        known = known if facets(op.name).spreads else frozenset()
        key = (node.op, attrs, layouts, zeros, known)
        found = self._memo.get(key)
        if found is None:
            self.applied += 1
            try:
                found = place(op, Operands(layouts, attrs, self.mesh, zeros, known))
            except Refused as refusal:
                found = refusal
            self._memo[key] = found
        else:
            self.reused += 1
        if isinstance(found, Refused):
            raise found
        return found
