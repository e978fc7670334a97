"""The small inputs of a counterexample, one grid each."""

import math

from markupsafe import Markup

from agent.report.model import TensorView
from agent.report.svg import MONO, Canvas, box, label, picture
from agent.report.text import number, shape

MOST = 8
"""Rows and columns drawn of one tensor."""
CELL_HEIGHT = 24.0
GAP = 22.0


def draw_tensors(tensors: tuple[TensorView, ...], width: float, key: str) -> Markup | None:
    """One below the other."""
    views = [view for view in tensors if view.values]
    if not views:
        return None
    drawn, y = Canvas(width), 0.0
    for view in views:
        y = _grid(drawn, view, y, width) + GAP
    told = "; ".join(f"{view.name} {shape(view.shape)}" for view in views)
    return picture(drawn, y - GAP + 2, key, "Inputs of the counterexample", told)


def _grid(drawn: Canvas, view: TensorView, y: float, width: float) -> float:
    """Draws it from `y` on; where it ends."""
    columns = view.shape[-1] if view.shape else 1
    rows = math.prod(view.shape[:-1])
    widest = max(len(number(value)) for value in view.values)
    cell = min(max(34.0, widest * 11.5 * MONO + 12), width / max(min(columns, MOST), 1))
    drawn.add(label(0, y + 11, view.name, "strong", room=width))
    drawn.add(label(0, y + 26, shape(view.shape), "muted mono", room=width, size=10.5))
    for r in range(min(rows, MOST)):
        for c in range(min(columns, MOST)):
            at = r * columns + c
            if at >= len(view.values):
                continue
            cut = (r == MOST - 1 and rows > MOST) or (c == MOST - 1 and columns > MOST)
            top = y + 33 + r * CELL_HEIGHT
            text = "…" if cut else number(view.values[at])
            drawn.add(box(c * cell, top, cell - 1, CELL_HEIGHT - 1, "entry", 2))
            drawn.add(label((c + 0.5) * cell, top + 16, text, "mono", "middle", cell, 11.5))
    return y + 36 + min(rows, MOST) * CELL_HEIGHT
