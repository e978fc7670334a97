"""A step of a plan in time: what each stage computes and exchanges, and what memory it holds.

Slots run in the order of the plan's schedule, each as early as what it needs allows. A micro-batch
takes what the price gives it (`synthesis/price/step.py`), whose step is a closed form of the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from shardproof.synthesis.price.constants import Machine
from shardproof.synthesis.price.model import Model
from shardproof.synthesis.price.plan import Plan
from shardproof.synthesis.price.step import passes as passes_of, price, terms
from shardproof.synthesis.schedules import Schedule, generate, in_flight, timeline

GENERATED = {"1f1b": "1f1b", "gpipe": "gpipe", "zb-1p": "zero_bubble",
             "zb-2p": "zero_bubble_2p"}  # fmt: skip
"""What the schedules of plans are called where they are generated. DualPipe has no generator."""
ROUNDS = 4
"""Micro-batches that are drawn, for each stage: after these a schedule repeats itself."""
ONCE = (("exchange", "gradients"), ("update", "optimizer"), ("waiting", "waiting"))
"""Kind and name of what comes once a step; waiting is of the micro-batches that are drawn."""
KINDS = {"F": "forward", "B": "backward", "W": "weight gradients"}


@dataclass(frozen=True)
class Span:
    """What a stage does for some time."""

    stage: int
    kind: str
    """forward, backward, weight gradients, exchange, update, waiting."""
    name: str
    start_s: float
    seconds: float


@dataclass(frozen=True)
class Step:
    """One optimizer step."""

    spans: tuple[Span, ...]
    held: tuple[tuple[int, float, float], ...]
    """(stage, seconds, bytes): what a stage holds from then on."""
    drawn: int
    """Micro-batches that are in it."""
    micro_batches: int
    """Micro-batches of the step."""

    @property
    def seconds(self) -> float:
        return max(s.start_s + s.seconds for s in self.spans)


def step_in_time(machine: Machine, model: Model, plan: Plan) -> Step | None:
    """A step of a plan that leaves nothing open; None for a schedule that is not generated."""
    schedule = _schedule(plan)
    if schedule is None:
        return None
    spent, used = terms(machine, model, plan), price(machine, model, plan).memory
    made = passes_of(machine, model, plan)
    layer = made.moe if made.moe is not None and model.moe_layers * 2 > model.layers else made.dense
    once = (spent.layers + spent.sends + spent.gathers) / plan.micro_batches / plan.chunks
    ahead = layer.forward / (layer.forward + layer.backward + layer.again)
    back = (1 - ahead) / (2 if schedule.split else 1)
    cost = {k: round(1e9 * once * x) for k, x in (("F", ahead), ("B", back), ("W", back))}
    times = timeline(schedule, {**cost, "R": 0})
    spans: list[Span] = []
    held: list[tuple[int, float, float]] = []
    states = used.total - used.activations
    each = used.activations / max(in_flight(schedule, 0).peak, 1)
    last = "W" if schedule.split else "B"
    for stage, slots in enumerate(schedule.stages):
        kept = 0
        held.append((stage, 0.0, states))
        for position, slot in enumerate(slots):
            start, end = times.start[stage, position] / 1e9, times.end[stage, position] / 1e9
            if slot.kind == "R":
                waits = spent.other * schedule.micro_batches / plan.micro_batches
                once_a_step = zip(ONCE, (spent.gradients, spent.update, waits), strict=True)
                spans += _after(stage, times.length / 1e9, once_a_step)
                continue
            spans.append(Span(stage, KINDS[slot.kind], str(slot), start, end - start))
            if slot.kind in ("F", last):
                kept += 1 if slot.kind == "F" else -1
                held.append((stage, start if slot.kind == "F" else end, states + kept * each))
    return Step(tuple(spans), tuple(held), schedule.micro_batches, plan.micro_batches)


def _schedule(plan: Plan) -> Schedule | None:
    """The order in which stages run the first micro-batches of a step."""
    drawn = min(plan.micro_batches, ROUNDS * plan.pp)
    kind = GENERATED.get(plan.schedule)
    if kind is None:
        return None
    if plan.chunks > 1:
        if plan.micro_batches % plan.pp:
            return None
        kind = "interleaved_1f1b"
    return generate(kind, plan.pp, drawn, plan.chunks)


def _after(
    stage: int, start: float, parts: Iterable[tuple[tuple[str, str], float]]
) -> Iterator[Span]:
    """What comes once a step, one after the other."""
    for (kind, name), seconds in parts:
        if seconds:
            yield Span(stage, kind, name, start, seconds)
        start += seconds


def trace_events(steps: dict[str, Step]) -> dict[str, Any]:
    """Steps by name in the Trace Event Format, which Perfetto and chrome://tracing open: times in
    microseconds, a process for each stage of each step."""
    events: list[dict[str, Any]] = []
    first = 1
    for name, step in steps.items():
        stages = sorted({s.stage for s in step.spans})
        for stage in stages:
            said = {"name": f"{name}, stage {stage}"}
            events.append({"ph": "M", "name": "process_name", "pid": first + stage, "args": said})
        events += [
            {"ph": "X", "name": s.name, "cat": s.kind, "pid": first + s.stage, "tid": 1,
             "ts": s.start_s * 1e6, "dur": s.seconds * 1e6}
            for s in step.spans
        ]  # fmt: skip
        events += [
            {"ph": "C", "name": "memory", "pid": first + stage, "ts": at * 1e6,
             "args": {"GB": size / 1e9}}
            for stage, at, size in step.held
        ]  # fmt: skip
        first += len(stages)
    return {"displayTimeUnit": "ms", "traceEvents": events}
