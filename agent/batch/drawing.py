"""The picture of a batch: where the time of each job went, and what it ended in."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from agent.batch.rows import Row
from agent.report.svg import MONO, SANS, Canvas, box, label, picture
from agent.report.text import duration

PARTS: Mapping[str, tuple[str, ...]] = {
    "capture": ("capture", "inspect", "reuse"),
    "plan": ("plan",),
    "prove": ("verify", "check", "read"),
    "emit and run": ("emit", "run", "report"),
}
"""What is drawn together; the rest is starting the process."""
MOST = 60
"""Jobs that are drawn: those that took longest."""
LINE = 17.0


def split(row: Row) -> list[tuple[str, float]]:
    """Seconds by part; they add up to those of the row."""
    parts = [(name, sum(row.phases.get(p, 0.0) for p in names)) for name, names in PARTS.items()]
    rest = row.seconds - sum(seconds for _, seconds in parts)
    return [*parts, ("the rest", max(rest, 0.0))]


def draw_times(rows: Sequence[Row], width: float, key: str) -> Markup | None:
    """A bar for each job that ran in this batch or before, on one scale."""
    shown = sorted((r for r in rows if r.seconds > 0), key=lambda r: -r.seconds)[:MOST]
    if not shown:
        return None
    most = shown[0].seconds
    names = min(max(len(r.name) for r in shown) * 10.5 * MONO + 22, width * 0.42)
    room = width - names - 62
    drawn, y = Canvas(width), 0.0
    x = 0.0
    for index, part in enumerate((*PARTS, "the rest")):
        wide = 13 + len(part) * 9.5 * SANS + 12
        if x > 0 and x + wide > width:
            x, y = 0.0, y + 15
        drawn.add(box(x, y, 9, 9, f"t{index}", 2), label(x + 13, y + 8.5, part, "muted", size=9.5))
        x += wide
    y += 20
    for row in shown:
        sign = {"proved": "✓", "refuted": "✗", "failed": "✗"}.get(row.status, "?")
        drawn.add(label(0, y + 10, sign, "strong", size=10.5))
        drawn.add(label(14, y + 10, row.name, "mono", room=names - 18, size=10.5))
        x = names
        for index, (part, seconds) in enumerate(split(row)):
            span = room * seconds / most
            if span > 0.2:
                tip = f"{row.name}, {part}: {duration(seconds)}"
                drawn.add(box(x, y + 1, span, 11, f"t{index}", 1, tip))
            x += span
        drawn.add(label(x + 6, y + 10, duration(row.seconds), "muted", size=10))
        y += LINE
    told = "; ".join(f"{r.name} {r.status} {duration(r.seconds)}" for r in shown)
    return picture(drawn, y, f"times-{key}", "Time of each job by phase", told)
