"""Draws a schedule in time."""

from html import escape

from shardproof.synthesis.schedules.slots import Schedule, in_flight
from shardproof.synthesis.schedules.timeline import timeline

COLOURS = {"F": "#9cc3e6", "B": "#f4b183", "W": "#c5e0b4", "R": "#d9d9d9"}


def draw_text(schedule: Schedule) -> str:
    """One row a stage, one column a unit of time; `.` is idle.

    A stage that comes to a slot that never runs ends with that slot and `!`.
    """
    times = timeline(schedule)
    width = 1 + max((len(str(slot)) for stage in schedule.stages for slot in stage), default=1)
    head = max(5, len(str(len(schedule.stages) - 1)) + 6)
    rows: list[str] = []
    for stage, slots in enumerate(schedule.stages):
        cells = ["."] * times.length
        tail = ""
        for position, slot in enumerate(slots):
            if (stage, position) not in times.start:
                tail = f" {slot}!"
                break
            begin, end = times.start[stage, position], times.end[stage, position]
            if begin == end:
                tail += f" {slot}"
            for at in range(begin, end):
                cells[at] = str(slot) if at == begin else "-"
        row = "".join(cell.ljust(width) for cell in cells).rstrip()
        note = f"idle {times.idle(stage)}, keeps {in_flight(schedule, stage).peak}"
        rows.append(
            f"{f'stage {stage}'.ljust(head + 1)}|{row.ljust(width * times.length)}|{tail}  {note}"
        )
    return "\n".join([f"{schedule.name}: {times.length} units of time", *rows]) + "\n"


def draw_svg(schedule: Schedule) -> str:
    """The same as an SVG picture."""
    times = timeline(schedule)
    left, height, unit = 70, 26, 28
    width = left + unit * max(times.length, 1) + 10
    tall = height * len(schedule.stages) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{tall}" '
        f'viewBox="0 0 {width} {tall}" font-family="sans-serif" font-size="11" role="img">',
        f"<title>{escape(schedule.name)}</title>",
        f'<rect width="{width}" height="{tall}" fill="#ffffff"/>',
    ]
    for stage, slots in enumerate(schedule.stages):
        y = 20 + stage * height
        parts.append(f'<text x="6" y="{y + 16}">stage {stage}</text>')
        for position, slot in enumerate(slots):
            if (stage, position) not in times.start:
                break
            begin, end = times.start[stage, position], times.end[stage, position]
            if end > begin:
                x, w = left + begin * unit, (end - begin) * unit
                parts.append(
                    f'<rect x="{x}" y="{y}" width="{w - 1}" height="{height - 4}" rx="2" '
                    f'fill="{COLOURS[slot.kind]}"/>'
                    f'<text x="{x + w / 2:g}" y="{y + 15}" text-anchor="middle">{slot}</text>'
                )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
