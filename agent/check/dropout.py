"""Random numbers, as masks of dropout: what each rank draws must be its piece of what one device
draws."""

import itertools
from collections.abc import Mapping

from shardproof.agent.check.contract import Statements, splits
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch import random_states
from shardproof.synthesis.frontends.torch.captured import Draw
from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured
from shardproof.synthesis.frontends.torch.ranks.stated import layout_for
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.types import Mesh, Source
from shardproof.verifier.verdict import Location, Unknown

MASKS = ("dropout.", "drawn.")
"""Before the names of masks, and of other draws."""
MOST_CHOICES = 16
"""Layouts of all masks together that are tried."""
Masks = Mapping[str, Layout]


def choices(captured: RanksCaptured, mesh: Mesh, stated: Statements) -> list[Masks]:
    """Layouts that masks may have, by name: those stated, and else every split that fits what the
    ranks draw. If the outputs are equal for one of these, they are equal in distribution.

    Raises:
        InputError: ranks draw differently, or a shape that is no piece.
    """
    drawn = [[(d.name, d.shape, d.law) for d in side.draws] for side in captured.ranks]
    for rank, found in enumerate(drawn):
        if found != drawn[0]:
            odd = [*captured.ranks[rank].draws, *captured.ranks[0].draws][0]
            raise InputError(
                f"rank {rank} draws other numbers than rank 0, or in another order",
                where=str(odd),
                hint="let every rank draw alike, in the same order",
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
                f"{draw.name} has {list(draw.shape)} entries on one device and "
                f"{list(local[draw.name])} on a rank, which are not a piece of them",
                where=str(captured.ranks[0].draws[list(local).index(draw.name)]),
                hint="draw a piece of what the model draws",
            )
        options.append(fitting)
    names = [d.name for d in captured.one.draws]
    every = itertools.islice(itertools.product(*options), MOST_CHOICES)
    return [dict(zip(names, layouts, strict=True)) for layouts in every]


def clash(captured: RanksCaptured, masks: Masks, mesh: Mesh) -> Unknown | None:
    """Two draws from one state, of which one must be the same on all ranks along a mesh dim and
    the other differ."""
    found = random_states.clash(drawn(captured), masks, mesh)
    if found is None:
        return None
    name, other, draw = found
    return Unknown(
        f"what {draw} draws is for pieces over {name}, so ranks along {name} must draw "
        f"differently; what {other} draws is for values that all of them hold, so they must draw "
        "the same: one random state does not do both",
        Location(
            "dropout",
            draw.text,
            f"{draw.name} is split over {name}, {other.name} is not",
            Source(draw.file, draw.line, "", draw.text),
        ),
    )


def drawn(captured: RanksCaptured) -> list[Draw]:
    """The draws of one device, each with the line of a rank."""
    first = {d.name: d for d in captured.ranks[0].draws}
    return [first[d.name] for d in captured.one.draws]


def assumed(captured: RanksCaptured, masks: Masks, mesh: Mesh) -> list[str]:
    """What is taken for granted of random states."""
    return list(random_states.assumed(drawn(captured), masks, mesh))
