"""All edits of a program, likeliest first, and how far an edit takes it."""

from collections.abc import Iterator
from itertools import chain, islice

from shardproof.synthesis.repair.claims import Claim
from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.guided import factors, guided, settled
from shardproof.synthesis.repair.near import attributes, dropped, near, returned, scaled, skipped
from shardproof.synthesis.repair.numbers import State
from shardproof.synthesis.repair.view import UNMET, View, block
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Node

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
