"""Pipeline schedules as lists of steps, over `shardproof.synthesis.schedules`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from shardproof.synthesis.schedules import (
    Schedule,
    Slot,
    check_schedule,
    generate,
    in_flight,
    timeline,
)

Message = tuple[int, int, str]
"""(source, destination, tensor)."""


class OpType(Enum):
    """What a stage does with a micro-batch."""

    FORWARD = "F"
    BACKWARD = "B"


class Phase(Enum):
    """Part of a schedule."""

    WARMUP = "warmup"
    STEADY = "steady"
    COOLDOWN = "cooldown"


@dataclass
class MicroBatch:
    """One step of one stage: it receives, computes, then sends."""

    mb_id: int
    stage_id: int
    op_type: OpType
    phase: Phase
    sends: list[Message] = field(default_factory=list[Message])
    recvs: list[Message] = field(default_factory=list[Message])


def as_schedule(steps: Iterable[MicroBatch]) -> Schedule:
    """Steps as a schedule, each stage in its own order."""
    listed = list(steps)
    stages = max((s.stage_id for s in listed), default=0) + 1
    slots: list[list[Slot]] = [[] for _ in range(stages)]
    for step in listed:
        slots[step.stage_id].append(Slot(step.op_type.value, step.mb_id))
    count = max((s.mb_id for s in listed), default=0) + 1
    return Schedule(tuple((*own, Slot("R")) for own in slots), count)


class PP1F1BSchedule:
    """One forward, one backward (Narayanan et al. 2019).

    Raises:
        ValueError: no stage, or no micro-batch.
    """

    def __init__(self, num_stages: int, num_microbatches: int) -> None:
        self.num_stages, self.num_microbatches = num_stages, num_microbatches
        self.core = generate("1f1b", num_stages, num_microbatches)

    def generate(self) -> list[MicroBatch]:
        """The steps of all stages in the order in which they can begin."""
        return _steps(self.core)

    def generate_simple(self) -> list[MicroBatch]:
        """All forwards, then all backwards (GPipe, Huang et al. 2019)."""
        return _steps(generate("gpipe", self.num_stages, self.num_microbatches))

    def peak_activations(self) -> list[int]:
        """The most forwards of each stage that wait for their backward."""
        return [in_flight(self.core, s).peak for s in range(self.num_stages)]


def _steps(schedule: Schedule) -> list[MicroBatch]:
    times = timeline(schedule).start
    inside = range(len(schedule.stages))
    out: list[MicroBatch] = []
    for stage, position in sorted(times, key=lambda key: (times[key], key)):
        slots = schedule.stages[stage]
        slot = slots[position]
        if slot.kind not in ("F", "B"):
            continue
        forward = slot.kind == "F"
        word, step = ("act", 1) if forward else ("grad", -1)
        before, after, m = stage - step, stage + step, slot.micro_batch
        first = min(i for i, s in enumerate(slots) if s.kind == "B")
        last = max(i for i, s in enumerate(slots) if s.kind == "F")
        phase = Phase.WARMUP if position < first - 1 else Phase.STEADY
        phase = Phase.COOLDOWN if position > last + 1 else phase
        out.append(
            MicroBatch(
                m,
                stage,
                OpType(slot.kind),
                phase,
                [(stage, after, f"{word}{m}")] if after in inside else [],
                [(before, stage, f"{word}{m}")] if before in inside else [],
            )
        )
    return out


class ActivationTracker:
    """How many forwards of each stage wait for their backward at most."""

    def __init__(self, num_stages: int, max_activations_per_stage: int = 4) -> None:
        self.limit = max_activations_per_stage
        self.peak_memory = [0] * num_stages
        self.errors: list[str] = []

    def run(self, steps: Iterable[MicroBatch]) -> bool:
        """Whether the schedule has no fault and no stage keeps more than the limit."""
        schedule = as_schedule(steps)
        self.errors = [str(f) for f in check_schedule(schedule)]
        for stage in range(len(schedule.stages)):
            peak = self.peak_memory[stage] = in_flight(schedule, stage).peak
            if peak > self.limit:
                self.errors.append(f"stage {stage} keeps {peak}, more than {self.limit}")
        return not self.errors
