"""All edits of a program, likeliest first, and how far an edit takes it."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, islice

from shardproof.synthesis.repair.claims import Claim
from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.guided import closing, factors, guided, settled
from shardproof.synthesis.repair.near import attributes, dropped, near, returned, scaled, skipped
from shardproof.synthesis.repair.numbers import State
from shardproof.synthesis.repair.view import UNMET, View, block
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout, whole
from shardproof.verifier.kernel.program.program import Node, Program, leading_to
from shardproof.verifier.provers.relate.facts import Fact, Related
from shardproof.verifier.provers.sequential import Sequential

COLLECTIVES = 12
"""Collectives among what is lost that are looked at early."""


def _worth(claims: list[Claim]) -> float:
    """1 for a value that is a piece of something, half for a multiple, 0 else."""
    return 1.0 if any(c.scale == 1 for c in claims) else 0.5 if claims else 0.0


def gained(view: View, state: State, most: int) -> float:
    """How many more values are pieces of something than before, of those that were run again.

    One-device values that were not found before count half.
    """
    gain, new = 0.0, set[str]()
    for value in state.dirty[:most]:
        found = view.device.index.claims(state.parts(value))
        new |= {c.of for c in found if c.scale == 1 and c.of not in view.covered}
        if value in view.claims:
            gain += _worth(found) - _worth(view.claims[value])
    return gain + len(new) / 2


def candidates(
    view: View, contract: Contract, wanted: dict[str, str]
) -> Iterator[tuple[View, Edit]]:
    """Edits of a program, likeliest first; those of a repeated block beside its scan."""
    yield from ((view, e) for e in settled(view, contract, wanted))
    yield from _around(view)
    yield from ((view, e) for e in returned(view.program, view.wrong))


def _around(view: View) -> Iterator[tuple[View, Edit]]:
    suspects = view.suspects()
    for node in islice(suspects, UNMET):
        yield from _at(view, node)
    for other in view.collectives()[:COLLECTIVES]:
        for edit in chain(dropped(view.program, other), attributes(view.program, other)):
            yield view, edit
    yield from ((view, e) for e in skipped(view.program, view.leading))
    for node in suspects:
        yield from _at(view, node)


def _at(view: View, node: Node) -> Iterator[tuple[View, Edit]]:
    yield from ((view, e) for e in _edits(view, node))
    inner = block(view, node) if node.body is not None else None
    if inner is not None:
        yield from _around(inner)


def _edits(view: View, node: Node) -> Iterator[Edit]:
    yield from guided(view, node)
    yield from near(view.program, node)
    yield from factors(view, node)
    if view.program.types[node.outputs[0]].is_float:
        yield from scaled(view.program.mesh, node.outputs[0])


def likely(
    one: Sequential,
    distributed: Program,
    contract: Contract,
    related: Related,
    wrong: dict[str, list[Fact]],
) -> Iterator[Edit]:
    """Single edits that relations suggest, where no numbers are known, likeliest first.

    A pending sum suggests the collectives that close it, a wrong factor the scale that undoes it.
    """
    for broken in related.breaks[:2]:
        for value, fact in zip(broken.node.inputs, broken.operands, strict=False):
            yield from () if broken.path else _settled(value, fact.layout)
    wanted = {output_key(o): one.values[o.value] for o in one.program.outputs}
    for out in distributed.outputs:
        key = output_key(out)
        for fact in wrong.get(key, [])[:1]:
            target = contract.outputs[key]
            if fact.layout.partial:
                yield from _settled(out.value, fact.layout)
            if fact.ref.id == wanted[key].id and fact.ref.coef and fact.layout == target:
                scale = wanted[key].coef / fact.ref.coef
                yield Edit("after", out.value, "mul_scalar", (("value", Fraction(scale)),))
    ends = {o.value for o in distributed.outputs if output_key(o) in wrong}
    for node in reversed(leading_to(ends, distributed.nodes)):
        if node.op == "all_reduce":
            yield from dropped(distributed, node)
        for edit in attributes(distributed, node):
            if {name for name, _ in edit.attrs} <= {"reduce", "mesh_dim"}:
                yield edit


def _settled(value: str, layout: Layout) -> Iterator[Edit]:
    """Collectives that make a value whole, or that split a pending sum."""
    yield from closing(value, layout, Layout(tuple(map(whole, layout.global_shape))))
    for name, fold in layout.partial:
        for dim in range(len(layout.dims)) if fold == "sum" else ():
            attrs = (("dim", dim), ("mesh_dim", name), ("reduce", "sum"))
            yield Edit("after", value, "reduce_scatter", attrs)
