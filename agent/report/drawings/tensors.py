"""The tensors of a counterexample, one grid per owner, wrong elements marked."""

import math

from markupsafe import Markup

from agent.report.model import TensorView
from agent.report.svg import MONO, Canvas, box, canvas, label, picture
from agent.report.text import number, shape

MOST = 8
"""Rows and columns drawn of one tensor."""
CELL_HEIGHT = 24.0
GAP = 22.0


def draw_tensors(tensors: tuple[TensorView, ...], width: float, key: str) -> Markup | None:
    """Views flow from left to right; a new name starts a new line."""
    views = [view for view in tensors if view.values]
    if not views:
        return None
    drawn, x, y, line_height, name = canvas(width), 0.0, 0.0, 0.0, views[0].name
    for view in views:
        span, height = _extent(view, width)
        if x > 0 and (x + span > width or view.name != name):
            x, y, line_height = 0.0, y + line_height + GAP, 0.0
        _grid(drawn, view, x, y, width)
        x, line_height, name = x + span + GAP, max(line_height, height), view.name
    wrong = [
        f"{v.name} on {v.owner} is wrong at {' '.join(map(shape, v.marked))}"
        for v in views
        if v.marked
    ]
    told = "; ".join(wrong) or "no element is marked"
    return picture(drawn, y + line_height + 2, key, "Tensors of the counterexample", told)


def _rows(view: TensorView) -> tuple[int, int]:
    columns = view.shape[-1] if view.shape else 1
    return math.prod(view.shape[:-1]), columns


def _cell(view: TensorView, width: float) -> float:
    columns = min(_rows(view)[1], MOST)
    widest = max(len(number(value)) for value in view.values)
    return min(max(34.0, widest * 11.5 * MONO + 12), width / max(columns, 1))


def _extent(view: TensorView, width: float) -> tuple[float, float]:
    rows, columns = (min(n, MOST) for n in _rows(view))
    caption = max(len(_caption(view)), len(view.owner)) * 10.5 * MONO
    return max(columns * _cell(view, width), min(caption, width)), 36 + rows * CELL_HEIGHT


def _caption(view: TensorView) -> str:
    return f"{view.name} {shape(view.shape)} {view.placement}".rstrip()


def _grid(drawn: Canvas, view: TensorView, x: float, y: float, width: float) -> None:
    rows, columns = _rows(view)
    cell = _cell(view, width)
    drawn.add(label(x, y + 11, view.owner, "strong", room=width - x))
    drawn.add(label(x, y + 26, _caption(view), "muted mono", room=width - x, size=10.5))
    marked = {_flat(view.shape, index) for index in view.marked}
    for r in range(min(rows, MOST)):
        for c in range(min(columns, MOST)):
            at = r * columns + c
            if at >= len(view.values):
                continue
            cut = (r == MOST - 1 and rows > MOST) or (c == MOST - 1 and columns > MOST)
            state = "wrong" if at in marked else "entry"
            top = y + 33 + r * CELL_HEIGHT
            text = "…" if cut and at not in marked else number(view.values[at])
            drawn.add(box(x + c * cell, top, cell - 1, CELL_HEIGHT - 1, state, 2))
            middle = x + (c + 0.5) * cell
            drawn.add(label(middle, top + 16, text, f"mono on-{state}", "middle", cell, 11.5))


def _flat(extents: tuple[int, ...], index: tuple[int, ...]) -> int:
    flat = 0
    for extent, i in zip(extents, index, strict=False):
        flat = flat * extent + i
    return flat
