"""One-edit repairs of a refuted program, each related anew before it is offered.

A pending sum looks up the collectives that close it, a wrong factor the scale that undoes it, a
collective too many its removal. Nothing here is trusted: an edit is offered only where every
output of the edited program meets the contract.
"""

from collections.abc import Iterator
from fractions import Fraction

from shardproof.synthesis.repair.edits import Edit, apply
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout, bound
from shardproof.verifier.kernel.live import leading_to
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Attr
from shardproof.verifier.provers.relate.facts import Fact, Related
from shardproof.verifier.provers.relate.goal import initial, satisfied
from shardproof.verifier.provers.relate.rules import Rules
from shardproof.verifier.provers.relate.walk import relate
from shardproof.verifier.provers.sequential import Sequential

LIMIT = 60
"""Edits tried at most."""


def repairs(
    one: Sequential,
    distributed: Program,
    contract: Contract,
    related: Related,
    wrong: dict[str, list[Fact]],
    most: int = 3,
) -> tuple[str, ...]:
    """Descriptions of single edits after which every output meets the contract, likeliest first."""
    found: list[str] = []
    for count, edit in enumerate(likely(one, distributed, contract, related, wrong)):
        if len(found) == most or count == LIMIT:
            break
        try:
            edited = apply(distributed, edit)
        except IRError:
            continue
        again = relate(one, edited, initial(contract, one, edited), contract, Rules(edited.mesh))
        if not satisfied(one, edited, again, contract):
            found.append(str(edit))
    return tuple(dict.fromkeys(found))


def likely(
    one: Sequential,
    distributed: Program,
    contract: Contract,
    related: Related,
    wrong: dict[str, list[Fact]],
) -> Iterator[Edit]:
    """Single edits that what was found suggests, likeliest first; none is judged."""
    for broken in related.breaks[:2]:
        if broken.path:
            continue
        for value, fact in zip(broken.node.inputs, broken.operands, strict=False):
            yield from _settle(value, fact.layout)
    wanted = {output_key(o): one.values[o.value] for o in one.program.outputs}
    for out in distributed.outputs:
        key = output_key(out)
        for fact in wrong.get(key, [])[:1]:
            target = contract.outputs[key]
            if fact.layout.partial:
                yield from _settle(out.value, fact.layout)
            if fact.ref.id == wanted[key].id and fact.ref.coef and fact.layout == target:
                scale = wanted[key].coef / fact.ref.coef
                yield Edit("after", out.value, "mul_scalar", (("value", Fraction(scale)),))
    reach = _ancestors(distributed, wrong)
    for node in reversed(distributed.nodes):
        if node.outputs[0] not in reach:
            continue
        how = node.attrs.get("reduce")
        if how in ("sum", "avg"):
            other: Attr = "avg" if how == "sum" else "sum"
            attrs = tuple(sorted({**node.attrs, "reduce": other}.items()))
            yield Edit("replace", node.outputs[0], node.op, attrs)
        if node.op == "all_reduce":
            yield Edit("drop", node.outputs[0], node.op)
        mesh_dim = node.attrs.get("mesh_dim")
        for name in distributed.mesh.names if mesh_dim else ():
            if name != mesh_dim:
                attrs = tuple(sorted({**node.attrs, "mesh_dim": name}.items()))
                yield Edit("replace", node.outputs[0], node.op, attrs)


def _settle(value: str, layout: Layout) -> Iterator[Edit]:
    """Collectives that make a value whole, or that split a pending sum."""
    for name, fold in layout.partial:
        yield Edit("after", value, "all_reduce", (("mesh_dim", name), ("reduce", fold)))
        if fold == "sum":
            for dim in range(len(layout.dims)):
                attrs = (("dim", dim), ("mesh_dim", name), ("reduce", "sum"))
                yield Edit("after", value, "reduce_scatter", attrs)
    for dim, atoms in enumerate(layout.dims):
        for name in bound(atoms):
            yield Edit("after", value, "all_gather", (("dim", dim), ("mesh_dim", name)))


def _ancestors(program: Program, wrong: dict[str, list[Fact]]) -> set[str]:
    """Values that a wrong output depends on."""
    ends = {o.value for o in program.outputs if output_key(o) in wrong}
    return ends.union(*(n.inputs for n in leading_to(ends, program.nodes)))
