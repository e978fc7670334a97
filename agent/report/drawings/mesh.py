"""The device mesh: one box per rank, and the piece of a weight that the rank stores."""

import math
from itertools import product

from markupsafe import Markup

from shardproof.agent.report.model import MeshDim
from shardproof.agent.report.svg import MONO, Canvas, box, element, label, picture

COLUMNS, ROWS, PANELS = 8, 4, 2
"""Ranks drawn along the last dim, the one before it, and the product of the others."""


def draw_mesh(mesh: tuple[MeshDim, ...], width: float, key: str) -> Markup | None:
    """Columns are the last mesh dim, rows the one before, earlier dims become panels."""
    if not mesh:
        return None
    column = mesh[-1]
    row = mesh[-2] if len(mesh) > 1 else MeshDim("", 1)
    outer = mesh[:-2]
    drawn, left = Canvas(width), 8.0
    if len(mesh) > 1:
        left = min(max(46.0, len(f"{row.name} {row.size}") * 10.5 * MONO + 12), width / 3)
    shown = _shown(column.size, COLUMNS if width > 400 else 4)
    cell = min((width - left - 8) / len(shown), 224.0)
    y = 8.0
    for panel in list(product(*(range(dim.size) for dim in outer)))[:PANELS]:
        if outer:
            where = ", ".join(f"{d.name} {i}" for d, i in zip(outer, panel, strict=True))
            room = width - left
            drawn.add(label(left, y + 8, where, "muted mono", room=room, size=10.5))
            y += 14
        y = _panel(drawn, mesh, panel, row, column, left, y, cell, shown)
    ranks = math.prod(dim.size for dim in mesh)
    hidden = math.prod(dim.size for dim in outer) - PANELS
    if hidden > 0:
        drawn.add(label(left, y + 4, f"and {hidden} more like these", "muted"))
        y += 16
    words = "; ".join(f"{d.name} has {d.size} coordinates and {d.does or 'no role'}" for d in mesh)
    named = ", ".join(f"{d.name} = {d.size}" for d in mesh)
    return picture(drawn, y + 2, key, f"Device mesh of {ranks} ranks: {named}", words)


def _shown(size: int, limit: int) -> list[int | None]:
    """Coordinates to draw; None is the gap."""
    if size <= limit:
        return list(range(size))
    return [*range(limit - 2), None, size - 1]


def _panel(
    drawn: Canvas,
    mesh: tuple[MeshDim, ...],
    panel: tuple[int, ...],
    row: MeshDim,
    column: MeshDim,
    left: float,
    top: float,
    cell: float,
    shown: list[int | None],
) -> float:
    """One grid of ranks; returns the y below it."""
    height = 62.0
    for i, c in enumerate(shown):
        name = f"{column.name} {c}" if c is not None else "…"
        x = left + (i + 0.5) * cell
        drawn.add(label(x, top + 10, name, "axis mono", "middle", cell - 2, 10.5))
    y = top + 16
    for r in _shown(row.size, ROWS):
        if r is None:
            drawn.add(label(left + cell * len(shown) / 2, y + 8, "⋮", "muted", "middle", size=13))
            y += 18
            continue
        if row.name:
            name, room = f"{row.name} {r}", left - 9
            drawn.add(label(left - 8, y + height / 2, name, "axis mono", "end", room, 10.5))
        span = cell * len(shown)
        drawn.add(box(left, y, span - 2, height - 6, "band", 6))
        for i, c in enumerate(shown):
            if c is not None:
                at = (*panel, r, c) if row.name else (*panel, c)
                _rank(drawn, mesh, at, left + i * cell + 4, y + 4, cell - 10, height - 14)
            else:
                drawn.add(label(left + (i + 0.5) * cell, y + 32, "…", "muted", "middle", size=13))
        y += height
    return y + 6


def _rank(
    drawn: Canvas,
    mesh: tuple[MeshDim, ...],
    at: tuple[int, ...],
    x: float,
    y: float,
    width: float,
    height: float,
) -> None:
    rank = 0
    for dim, coordinate in zip(mesh, at, strict=True):
        rank = rank * dim.size + coordinate
    drawn.add(box(x, y, width, height, "rank", 4))
    stacked = width < 84
    glyph = 20.0 if stacked else 28.0
    gx = x + (width - glyph) / 2 if stacked else x + width - glyph - 9
    gy = y + 18 if stacked else y + (height - glyph) / 2
    text_x, text_y = (x + width / 2, y + 13) if stacked else (x + 10, y + height / 2 + 4)
    name = f"{rank}" if stacked else f"rank {rank}"
    drawn.add(label(text_x, text_y, name, "strong", "middle" if stacked else "start", size=11.5))
    drawn.add(owned(mesh, at, gx, gy, glyph, f"what rank {rank} stores of a split weight"))


def owned(
    mesh: tuple[MeshDim, ...], at: tuple[int, ...], x: float, y: float, side: float, tip: str
) -> Markup:
    """A square for a weight with this rank's piece filled: the last splitting mesh dim cuts it in
    columns, the others in rows."""
    cuts = [(d, c) for d, c in zip(mesh, at, strict=True) if d.splits_parameters]
    across, down = (1, 0), (1, 0)
    if cuts:
        across = (cuts[-1][0].size, cuts[-1][1])
        for dim, coordinate in cuts[:-1]:
            down = (down[0] * dim.size, down[1] * dim.size + coordinate)
    w, h = side / across[0], side / down[0]
    return element(
        "g",
        element("title", tip),
        box(x, y, side, side, "whole", 1.5),
        box(x + w * across[1], y + h * down[1], max(w, 1.5), max(h, 1.5), "piece", 1.5),
    )
