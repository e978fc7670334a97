"""Stacked bars: memory on one device before and after, and where the time of a step goes."""

from markupsafe import Markup

from agent.report.model import Memory, TimeEstimate
from agent.report.svg import MONO, Canvas, box, label, line, picture
from agent.report.text import duration, size


def draw_memory(memory: Memory | None, width: float, key: str) -> Markup | None:
    """Two bars on one scale; a dashed line where the device is full, when that is in sight."""
    before, after = (sum(m.values()) for m in (memory.before, memory.after)) if memory else (0, 0)
    if memory is None or before <= 0:
        return None
    drawn = Canvas(width)
    capacity = memory.capacity or 0
    most = max(before, after)
    shows_line = 0 < capacity <= 4 * most
    scale = (width - 12) / max(most, capacity * 1.02 if shows_line else 0)
    y = 0.0
    for name, use in (("one device", memory.before), ("each rank of the plan", memory.after)):
        drawn.add(label(0, y + 12, name, "strong"))
        drawn.add(label(width, y + 12, size(sum(use.values())), "mono", "end", size=11.5))
        x = 0.0
        for index, (part, amount) in enumerate(use.items()):
            if amount > 0:
                tip = f"{part}: {size(amount)}"
                drawn.add(box(x, y + 19, max(amount * scale, 1.5), 18, f"c{index}", 1.5, tip))
                x += max(amount * scale, 1.5)
        y += 50
    if shows_line:
        x = capacity * scale
        drawn.add(line(x, 14, x, y - 6, "limit"))
        near_left = x < width / 2
        text = f"device holds {size(capacity)}"
        drawn.add(label(x, y + 6, text, "muted", "start" if near_left else "end", size=10.5))
        y += 14
    told = "; ".join(
        f"{part} {size(was)} before, {size(now)} after"
        for (part, was), now in zip(memory.before.items(), memory.after.values(), strict=True)
    )
    title = f"Memory: {size(before)} before, {size(after)} per rank after"
    return picture(drawn, y - 8, key, title, told)


def draw_time(time: TimeEstimate | None, width: float, key: str) -> Markup | None:
    """One bar; its parts in the order given."""
    if time is None or time.total <= 0:
        return None
    drawn, x = Canvas(width), 0.0
    for index, (name, seconds) in enumerate(time.parts.items()):
        span = width * seconds / time.total
        share = f"{seconds / time.total:.0%}"
        tip = f"{name}: {duration(seconds)}, {share}"
        drawn.add(box(x, 0, max(span - 1, 1.0), 22, f"t{min(index, 4)}", 1.5, tip))
        if span > 34:
            drawn.add(label(x + span / 2, 15, share, f"on-t{min(index, 4)}", "middle"))
        x += span
    told = "; ".join(f"{name} {duration(seconds)}" for name, seconds in time.parts.items())
    return picture(drawn, 23, key, f"Estimated time of one step: {duration(time.total)}", told)


def draw_traffic(
    totals: tuple[tuple[str, str, int, int], ...], width: float, key: str
) -> Markup | None:
    """A bar for each mesh dim and direction; `totals` as in `facts.totals`."""
    most = max((moved for *_, moved in totals), default=0)
    if most <= 0:
        return None
    longest = max(len(f"{dim} {phase}") for dim, phase, *_ in totals)
    drawn, names, y = Canvas(width), min(longest * 10.5 * MONO + 10, width * 0.42), 0.0
    room = width - names - 118
    for dim, phase, number, moved in totals:
        cls = "fw" if phase == "forward" else "bw"
        span = max(room * moved / most, 1.5)
        drawn.add(label(0, y + 12, f"{dim} {phase}", "mono", room=names - 4, size=10.5))
        drawn.add(box(names, y + 2, span, 13, f"flow {cls}", 1.5))
        text = f"{size(moved)} in {number:,}"
        drawn.add(label(names + span + 7, y + 12, text, "muted", size=10.5))
        y += 21
    told = "; ".join(f"{dim} {phase} {size(moved)} in {n}" for dim, phase, n, moved in totals)
    return picture(drawn, y - 3, key, "Bytes of collectives in one step", told)
