"""What the contract gives about the inputs, and what it asks of the outputs."""

from collections.abc import Mapping, Sequence

from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, within
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
