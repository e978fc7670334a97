"""Masks of dropout: what each rank draws must be its piece of what one device draws.

Entries of a mask are independent of each other. So pieces that different ranks hold must be drawn
from different random states, and a piece that several ranks hold from the same state. One state
cannot do both along one mesh dim.
"""

import itertools
from collections.abc import Mapping, Sequence

from shardproof.agent.check.contract import Statements, splits
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured
from shardproof.synthesis.frontends.torch.ranks.stated import layout_for
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.types import Mesh, Source
from shardproof.verifier.verdict import Location, Unknown

MASKS = "dropout."
"""Before the names of masks."""
MOST_CHOICES = 16
"""Layouts of all masks together that are tried."""
Masks = Mapping[str, Layout]


def choices(captured: RanksCaptured, mesh: Mesh, stated: Statements) -> list[Masks]:
    """Layouts that masks may have, by name: those stated, and else every split that fits what the
    ranks draw. If the outputs are equal for one of these, they are equal in distribution.

    Raises:
        InputError: ranks draw differently, or a shape that is no piece.
    """
    drawn = [[(d.name, d.shape, d.keep) for d in side.draws] for side in captured.ranks]
    for rank, found in enumerate(drawn):
        if found != drawn[0]:
            odd = [*captured.ranks[rank].draws, *captured.ranks[0].draws][0]
            raise InputError(
                f"rank {rank} drops other values than rank 0, or in another order",
                where=str(odd),
                hint="let every rank draw the same masks, in the same order",
            )
    local = {d.name: d.shape for d in captured.ranks[0].draws}
    options: list[list[Layout]] = []
    for draw in captured.one.draws:
        lines = [line for line in stated.inputs if line.pattern.startswith(MASKS)]
        given = layout_for(lines, draw.name, draw.shape, mesh)
        found = [given] if given is not None else splits(draw.shape, local[draw.name], mesh)
        fitting = [f for f in found if f.local_shape == local[draw.name] and not f.pending]
        if not fitting:
            raise InputError(
                f"{draw.name} masks {list(draw.shape)} entries on one device and "
                f"{list(local[draw.name])} on a rank, which are not a piece of them",
                where=str(captured.ranks[0].draws[list(local).index(draw.name)]),
                hint="drop a piece of what the model drops",
            )
        options.append(fitting)
    names = [d.name for d in captured.one.draws]
    every = itertools.islice(itertools.product(*options), MOST_CHOICES)
    return [dict(zip(names, layouts, strict=True)) for layouts in every]


def clash(captured: RanksCaptured, masks: Masks, mesh: Mesh) -> Unknown | None:
    """Two draws from one state, of which one must be the same on all ranks along a mesh dim and
    the other differ."""
    for name, size in mesh.dims:
        if size == 1:
            continue
        whole, split = _along(captured, masks, name)
        if whole and split:
            draw = next(d for d in captured.ranks[0].draws if d.name in split)
            other = next(d for d in captured.ranks[0].draws if d.name in whole)
            return Unknown(
                f"dropout at {draw} is on pieces over {name}, so ranks along {name} must draw "
                f"differently; dropout at {other} is on values that all of them hold, so they must "
                "draw the same: one random state does not do both",
                Location(
                    "dropout",
                    draw.text,
                    f"{draw.name} is split over {name}, {other.name} is not",
                    Source(draw.file, draw.line, "", draw.text),
                ),
            )
    return None


def _along(captured: RanksCaptured, masks: Masks, name: str) -> tuple[list[str], list[str]]:
    """Masks that all ranks along a mesh dim hold, and those of which each holds a piece."""
    names = [d.name for d in captured.one.draws]
    split = [n for n in names if name in masks[n].sharded]
    return [n for n in names if n not in split], split


def assumed(captured: RanksCaptured, masks: Masks, mesh: Mesh) -> list[str]:
    """What is taken for granted of random states."""
    out: list[str] = []
    for name, size in mesh.dims if captured.one.draws else ():
        if size == 1:
            continue
        whole, split = _along(captured, masks, name)
        if whole:
            out.append(
                f"Dropout at {_lines(captured, whole)} on values that are whole on every {name} "
                f"rank: ranks along {name} draw the same mask (same random state)."
            )
        if split:
            out.append(
                f"Dropout at {_lines(captured, split)} on pieces over {name}: ranks along {name} "
                "draw masks of their own (different random states)."
            )
    if out:
        out.append("Results with dropout are equal in distribution: for every mask.")
    return out


def _lines(captured: RanksCaptured, names: Sequence[str]) -> str:
    found = [str(d) for d in captured.ranks[0].draws if d.name in names]
    return ", ".join(dict.fromkeys(found))
