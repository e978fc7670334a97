"""What the picture of a block shows: stages, frames, and where collectives sit."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from shardproof.agent.report.model import MeshDim, ModuleRow
from shardproof.synthesis.planner.plan import CollectiveUse

MOST_STAGES = 40


@dataclass(frozen=True, slots=True)
class Stage:
    """Modules drawn side by side: siblings of one style with the same placements."""

    rows: tuple[ModuleRow, ...]
    frame: str
    """Path of the repeated block around them, "" outside."""
    entering: tuple[CollectiveUse, ...] = ()
    leaving: tuple[CollectiveUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    stages: tuple[Stage, ...]
    of_frame: dict[str, tuple[CollectiveUse, ...]]
    """Frame to the collectives on its parameters; "" is what stands at no module."""
    hidden: int
    """Modules beyond what fits."""


def flow_of(
    plan: tuple[ModuleRow, ...],
    collectives: tuple[CollectiveUse, ...],
    mesh: tuple[MeshDim, ...] = (),
) -> Flow:
    """Only modules that own parameters are drawn; a collective at another module (a container) goes
    to the last stage inside it."""
    drawn = [row for row in plan if row.parameters]
    stages: list[Stage] = []
    for row in drawn:
        if stages and _beside(stages[-1].rows[-1], row):
            stages[-1] = replace(stages[-1], rows=(*stages[-1].rows, row))
        else:
            stages.append(Stage((row,), frame_of(row.path)))
    of_frame: dict[str, tuple[CollectiveUse, ...]] = {}
    data = {dim.name for dim in mesh if dim.data}
    for use in collectives:
        index = None if use.mesh_dim in data else _stage_of(stages, use.where)
        if index is None:
            frame = frame_of(use.where)
            of_frame[frame] = (*of_frame.get(frame, ()), use)
        elif side(use, plan) == "input":
            stages[index] = replace(stages[index], entering=(*stages[index].entering, use))
        else:
            stages[index] = replace(stages[index], leaving=(*stages[index].leaving, use))
    kept = tuple(stages[:MOST_STAGES])
    return Flow(kept, of_frame, sum(len(s.rows) for s in stages[MOST_STAGES:]))


def frame_of(path: str) -> str:
    """Path of the repeated block around a module: `model.layers.*`, or a slice for the star."""
    found = re.match(r".*?(\*|\[\d+:\d+:\d+\])", path)
    return found[0] if found else ""


def side(use: CollectiveUse, plan: Iterable[ModuleRow]) -> str:
    """Where the collective stands at its module. A column-split module communicates at its input
    (in the backward pass the gradient of it), others at their output."""
    styles = {row.path: row.style for row in plan}
    return "input" if "column" in styles.get(use.where, "") else "output"


def _beside(a: ModuleRow, b: ModuleRow) -> bool:
    same = (a.style, a.input, a.output) == (b.style, b.input, b.output)
    return same and a.path.rpartition(".")[0] == b.path.rpartition(".")[0] and "column" in a.style


def _stage_of(stages: list[Stage], where: str) -> int | None:
    if where in ("", frame_of(where)):
        return None
    inside = [
        index
        for index, stage in enumerate(stages)
        if any(row.path == where or row.path.startswith(where + ".") for row in stage.rows)
    ]
    return inside[-1] if inside else None
