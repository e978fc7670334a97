"""One block of the model: its modules from top to bottom, placements between them, and the
collectives of the forward pass on the left and of the backward pass on the right."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from markupsafe import Markup

from shardproof.agent.report.model import MeshDim, ModuleRow, Parameter, Report
from shardproof.agent.report.svg import MONO, Canvas, arrow, box, element, label, line, picture
from shardproof.agent.report.text import leaf, size
from shardproof.synthesis.planner.plan import CollectiveUse

BOX, PILL, MARGIN = 40.0, 19.0, 10.0
LANE = 0.225
"""Where the wire of the forward pass runs, as a share of the width."""
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


def draw_block(report: Report, width: float, key: str) -> Markup | None:
    flow = flow_of(report.plan, report.collectives, report.mesh)
    if not flow.stages:
        return None
    drawn, y, frame, top = Canvas(width), 22.0, "", 0.0
    down, up = _lanes(width)
    drawn.add(label(down, 11, "forward ↓", "fw", "middle"))
    drawn.add(label(up, 11, "backward ↑", "bw", "middle"))
    frames: list[Markup] = []
    for index, stage in enumerate(flow.stages):
        before = flow.stages[index - 1] if index else None
        if stage.frame != frame and frame:
            frames.append(_frame(width, top, y + 8))
            y += 8
        y = _gap(drawn, before, stage, y)
        if stage.frame != frame and stage.frame:
            top = y
            y = _frame_head(drawn, report, stage.frame, flow, y)
        frame = stage.frame
        y = _stage(drawn, report.mesh, stage, y)
    if frame:
        frames.append(_frame(width, top, y + 8))
        y += 8
    y = _gap(drawn, flow.stages[-1], None, y)
    y = _tail(drawn, flow, y)
    drawn.parts[:0] = frames
    return picture(drawn, y, key, "The model under the plan", _told(report, flow))


def _lanes(width: float) -> tuple[float, float]:
    """Where the wires of the forward and the backward pass run."""
    return width * LANE, width * (1 - LANE)


def _middle(width: float) -> float:
    """Room for the placement of the activation, between the wires and what stands on them."""
    return width * (0.17 if width > 400 else 0.125)


def _told(report: Report, flow: Flow) -> str:
    modules = ", ".join(row.path for stage in flow.stages for row in stage.rows)
    uses = "; ".join(f"{u.phase} {u.op} over {u.mesh_dim} at {u.where}" for u in report.collectives)
    return f"Modules in order: {modules}. Collectives: {uses or 'none'}."


def _frame(width: float, top: float, bottom: float) -> Markup:
    return box(1, top, width - 2, bottom - top, "frame", 8)


def _frame_head(drawn: Canvas, report: Report, frame: str, flow: Flow, y: float) -> float:
    rolled = report.capture.rolled.get(frame) if report.capture else None
    drawn.add(label(MARGIN, y + 16, frame, "mono strong", room=drawn.width - 80))
    if rolled:
        drawn.add(label(drawn.width - MARGIN, y + 16, f"× {rolled}", "strong", "end"))
    return _pills(drawn, flow.of_frame.get(frame, ()), y + 24) + 4


def _tail(drawn: Canvas, flow: Flow, y: float) -> float:
    uses = flow.of_frame.get("", ())
    if uses:
        drawn.add(label(0, y + 20, "at no module above", "muted", size=10.5))
        y = _pills(drawn, uses, y + 27)
    if flow.hidden:
        drawn.add(label(0, y + 16, f"and {flow.hidden} modules more, in the table", "muted"))
        y += 20
    return y + 4


def _gap(drawn: Canvas, before: Stage | None, stage: Stage | None, y: float) -> float:
    """Everything between two rows of boxes: wires, pills, the placement of the activation."""
    uses = (*(before.leaving if before else ()), *(stage.entering if stage else ()))
    came = before.rows[0].output if before else ""
    goes = stage.rows[0].input if stage else ""
    rows = _pill_rows(uses)
    height = max(24.0, rows * (PILL + 3) + 12, 36.0 if came and goes and came != goes else 0)
    middle, room = drawn.width / 2, _middle(drawn.width)
    down, up = _lanes(drawn.width)
    drawn.add(arrow(down, y + 2, y + height - 2, "fw"))
    drawn.add(arrow(up, y + height - 2, y + 2, "bw"))
    _pills(drawn, uses, y + (height - rows * (PILL + 3)) / 2)
    changes = f"{came} → {goes}"
    if came and goes and came != goes and drawn.width > 400 and len(changes) <= 14:
        drawn.add(label(middle, y + height / 2 + 4, changes, "mono place", "middle", size=10.5))
    elif came and goes and came != goes:
        drawn.add(label(middle, y + height / 2 - 3, came, "mono place", "middle", room, 10.5))
        drawn.add(label(middle, y + height / 2 + 11, goes, "mono place", "middle", room, 10.5))
    elif goes or came:
        drawn.add(
            label(middle, y + height / 2 + 4, goes or came, "mono place", "middle", room, 10.5)
        )
    return y + height


def _pill_rows(uses: Iterable[CollectiveUse]) -> int:
    return max(len(_merged(uses, "forward")), len(_merged(uses, "backward")))


def _merged(uses: Iterable[CollectiveUse], phase: str) -> list[tuple[CollectiveUse, ...]]:
    """Those of one direction, the same operation over the same mesh dim together."""
    alike: dict[tuple[str, str], tuple[CollectiveUse, ...]] = {}
    for use in uses:
        if use.phase == phase:
            alike[use.op, use.mesh_dim] = (*alike.get((use.op, use.mesh_dim), ()), use)
    return list(alike.values())


def _pills(drawn: Canvas, uses: tuple[CollectiveUse, ...], y: float) -> float:
    down, up = _lanes(drawn.width)
    room = min(2 * down, up - down - _middle(drawn.width)) - 6
    for phase, x, cls in (("forward", down, "fw"), ("backward", up, "bw")):
        for index, alike in enumerate(_merged(uses, phase)):
            _pill(drawn, alike, x, y + index * (PILL + 3), room, cls)
    return y + _pill_rows(uses) * (PILL + 3)


def _pill(
    drawn: Canvas, alike: tuple[CollectiveUse, ...], x: float, y: float, room: float, cls: str
) -> None:
    short = f"{alike[0].op} {alike[0].mesh_dim}"
    full = f"{short} {size(sum(use.bytes for use in alike))}"
    text = full if drawn.width > 400 and len(full) * 10.5 * MONO + 14 <= room else short
    span = min(len(text) * 10.5 * MONO + 14, room)
    tip = "\n".join(
        f"{use.phase} {use.op} over {use.mesh_dim} at {use.where or 'no module'}: "
        f"{size(use.bytes)}, {use.count} times a step. {use.reason}"
        for use in alike
    )
    drawn.add(box(x - span / 2, y, span, PILL, f"pill {cls}", PILL / 2, tip))
    drawn.add(label(x, y + 13, text, f"mono on-{cls}", "middle", span - 8, 10.5))


def _stage(drawn: Canvas, mesh: tuple[MeshDim, ...], stage: Stage, y: float) -> float:
    inset = MARGIN if stage.frame else 1.0
    n = len(stage.rows)
    each = (drawn.width - 2 * inset - 6 * (n - 1)) / n
    for index, row in enumerate(stage.rows):
        x = inset + index * (each + 6)
        drawn.add(box(x, y, each, BOX, "module", 4, f"{row.path}: {row.kind}. {row.reason}"))
        drawn.add(line(x + 1.5, y + 3, x + 1.5, y + BOX - 3, f"edge {style_class(row.style)}"))
        glyph = 26.0 if each > 84 else 0.0
        room = each - glyph - 20
        name = leaf(row.path)[1]
        drawn.add(label(x + 9, y + 17, name, "mono strong", room=room, size=11.5))
        drawn.add(label(x + 9, y + 31, row.style.replace("_", " "), "muted", room=room, size=10.5))
        if glyph and row.parameters:
            drawn.add(_piece(row.parameters[0], mesh, x + each - glyph - 7, y + 7, glyph))
    return y + BOX


def style_class(style: str) -> str:
    """One of five hues, by what the style does to the weight."""
    for word in ("column", "row", "vocab", "sequence"):
        if word in style:
            return f"s-{word}"
    return "s-replicate"


def _piece(
    parameter: Parameter, mesh: tuple[MeshDim, ...], x: float, y: float, side: float
) -> Markup:
    """A square with rank 0's piece filled: Shard(0) cuts rows, Shard(1) columns."""
    wide, high = 1.0, 1.0
    for dim in mesh:
        found = re.search(r"S(?:hard)?\((-?\d+)", parameter.placements.get(dim.name, ""))
        if found and int(found[1]) == 0 and len(parameter.shape) > 1:
            high /= dim.size
        elif found:
            wide /= dim.size
    placed = ", ".join(f"{name} {where}" for name, where in parameter.placements.items())
    return element(
        "g",
        element("title", f"{parameter.name}: {placed or 'Replicate'}"),
        box(x, y, side, side, "whole", 1.5),
        box(x, y, max(side * wide, 1.5), max(side * high, 1.5), "piece", 1.5),
    )


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
