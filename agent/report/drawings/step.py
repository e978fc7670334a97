"""A step of each plan in time with the memory it holds, and the front of time against memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from shardproof.agent.report.model import StepInTime
from shardproof.agent.report.svg import Canvas, box, element, label, line, picture
from shardproof.agent.report.text import duration, size

KINDS = {"forward": "t0", "backward": "t1", "weight gradients": "t2", "exchange": "t3",
         "update": "t4", "waiting": "t5"}  # fmt: skip
ROW, LEFT = 26.0, 52.0
NARROW = 400.0
"""Where the name of a plan and what it takes have no room in one line."""


def draw_step(steps: Mapping[str, StepInTime], width: float, key: str) -> Markup | None:
    """A row for each stage, one plan below the other. Memory is on one scale, and so is time where
    whole steps are drawn."""
    if not steps:
        return None
    drawn, y = Canvas(width), 0.0
    lengths = {name: _length(step) for name, step in steps.items()}
    peak = max(held for step in steps.values() for *_, held in step.held)
    whole = all(step.drawn == step.micro_batches for step in steps.values())
    for name, step in steps.items():
        length = lengths[name]
        part = f", {step.drawn} of {step.micro_batches} micro-batches"
        part = part if step.drawn < step.micro_batches else ""
        drawn.add(label(0, y + 12, name, "strong"))
        if width < NARROW:
            y += 14
        drawn.add(label(width, y + 12, f"{duration(length)}{part}", "mono", "end", size=11.5))
        longest = max(lengths.values()) if whole else length
        scale = (width - LEFT) / longest, (ROW - 8) / peak
        y = _rows(drawn, step, length, scale, y + 20) + 8
    x = 0.0
    for kind, cls in KINDS.items():
        if any(s[1] == kind for step in steps.values() for s in step.spans):
            drawn.add(box(x, y, 10, 10, cls, 1), label(x + 14, y + 9, kind, "muted", size=10.5))
            x += 26 + 6.4 * len(kind)
    drawn.add(
        label(
            0,
            y + 26,
            f"line: memory of the stage, its row is {size(peak)} high",
            "muted",
            size=10.5,
        )
    )
    told = "; ".join(
        f"{name}: {step.stages} stages, {step.micro_batches} micro-batches"
        for name, step in steps.items()
    )
    return picture(drawn, y + 32, key, "One optimizer step in time", told)


def _length(step: StepInTime) -> float:
    return max(start + seconds for *_, start, seconds in step.spans)


def _rows(
    drawn: Canvas, step: StepInTime, length: float, scale: tuple[float, float], y: float
) -> float:
    """The stages of a plan, at so many pixels a second and a byte; returns where the next thing
    goes."""
    wide, tall = scale
    for stage in sorted({s[0] for s in step.spans}):
        drawn.add(label(0, y + 14, f"stage {stage}", "muted", size=10.5))
        for kind, name, start, seconds in (s[1:] for s in step.spans if s[0] == stage):
            tip = f"{name}: {kind}, {duration(seconds)}"
            x = LEFT + start * wide
            drawn.add(box(x, y, max(seconds * wide - 0.4, 0.4), ROW - 8, KINDS[kind], 0.5, tip))
        level = [(at, held) for other, at, held in sorted(step.held) if other == stage]
        path, ends = "", [*(at for at, _ in level[1:]), length]
        for (at, held), end in zip(level, ends, strict=True):
            high = y + ROW - 8 - held * tall
            path += f"{'L' if path else 'M'} {LEFT + at * wide:.1f} {high:.1f} "
            path += f"L {LEFT + end * wide:.1f} {high:.1f} "
        drawn.add(element("path", d=path.rstrip(), cls="level"))
        y += ROW
    return y


def draw_front(front: Sequence[dict[str, Any]], width: float, key: str) -> Markup | None:
    """A point for each plan: memory to the right, seconds of a step upwards."""
    if len(front) < 2:
        return None
    drawn, tall, left = Canvas(width), 120.0, 64.0
    times, sizes = [p["step_s"] for p in front], [p["memory_bytes"] for p in front]
    wide = width - left - 20
    drawn.add(line(left - 8, tall, width, tall, "axis"), line(left - 8, 0, left - 8, tall, "axis"))

    def at(plan: dict[str, Any]) -> tuple[float, float]:
        x = (plan["memory_bytes"] - min(sizes)) / ((max(sizes) - min(sizes)) or 1)
        y = (plan["step_s"] - min(times)) / ((max(times) - min(times)) or 1)
        return left + 6 + wide * x, (tall - 14) * (1 - y) + 4

    for plan in front:
        (x, y), tip = (
            at(plan),
            f"{plan['text']}: {duration(plan['step_s'])}, {size(plan['memory_bytes'])}",
        )
        drawn.add(element("circle", element("title", tip), cx=x, cy=y, r=4.5, cls="t0"))
    for edge, y in ((max(times), 12.0), (min(times), tall - 6)):
        drawn.add(label(left - 12, y, duration(edge), "mono", "end", size=10.5))
    drawn.add(label(left, tall + 16, size(min(sizes)), "mono", size=10.5))
    drawn.add(label(width, tall + 16, size(max(sizes)), "mono", "end", size=10.5))
    told = "; ".join(
        f"{size(used)}: {duration(seconds)}" for used, seconds in zip(sizes, times, strict=True)
    )
    return picture(drawn, tall + 22, key, "Time of a step against memory of a rank", told)
