"""A schedule in time: every slot as early as its stage and what it needs allow."""

from collections.abc import Mapping
from dataclasses import dataclass

from shardproof.synthesis.schedules.slots import Schedule, Slot

COST: Mapping[str, int] = {"F": 1, "B": 2, "W": 1, "R": 0}
"""A backward takes twice as long as a forward; split, its parts take one each."""
SPLIT_COST: Mapping[str, int] = {"F": 1, "B": 1, "W": 1, "R": 0}

Key = tuple[int, Slot]
"""(stage, slot)."""


@dataclass(frozen=True)
class Timeline:
    """When slots run. Where slots wait for each other they have no time."""

    schedule: Schedule
    start: dict[tuple[int, int], int]
    """(stage, position) -> begin."""
    end: dict[tuple[int, int], int]
    length: int
    blocked: tuple[tuple[int, int], ...]
    """(stage, position) of the first slot of each stage that never runs."""

    def idle(self, stage: int) -> int:
        """The bubble of a stage: time in which it runs nothing, from 0 to the end of all."""
        busy = sum(self.end[key] - self.start[key] for key in self.start if key[0] == stage)
        return self.length - busy


def needs(schedule: Schedule, stage: int, slot: Slot) -> list[Key]:
    """What a slot needs of other slots, the own stage included."""
    stages, part = len(schedule.stages), schedule.part(stage, slot)

    def at(kind: str, other: int) -> Key:
        return other % stages, Slot(kind, slot.micro_batch, other // stages)

    match slot.kind:
        case "F":
            return [at("F", part - 1)] if part else []
        case "B":
            after = [at("B", part + 1)] if part + 1 < schedule.parts else []
            return [at("F", part), *after]
        case "W":
            return [at("B", part)]
        case _:
            return []


def timeline(schedule: Schedule, cost: Mapping[str, int] | None = None) -> Timeline:
    """Run a schedule with stages that wait only for what they need."""
    costs = cost or (SPLIT_COST if schedule.split else COST)
    done: dict[Key, int] = {}
    waiting: dict[Key, list[int]] = {}
    position = [0] * len(schedule.stages)
    free = [0] * len(schedule.stages)
    start: dict[tuple[int, int], int] = {}
    end: dict[tuple[int, int], int] = {}
    todo = list(range(len(schedule.stages)))
    while todo:
        stage = todo.pop()
        while position[stage] < len(schedule.stages[stage]):
            slot = schedule.stages[stage][position[stage]]
            needed = needs(schedule, stage, slot)
            missing = [key for key in needed if key not in done]
            if missing:
                waiting.setdefault(missing[0], []).append(stage)
                break
            begin = max([free[stage], *(done[key] for key in needed)])
            free[stage] = begin + costs[slot.kind]
            start[stage, position[stage]] = begin
            end[stage, position[stage]] = free[stage]
            done.setdefault((stage, slot), free[stage])
            todo += waiting.pop((stage, slot), [])
            position[stage] += 1
    blocked = tuple(
        (stage, position[stage])
        for stage, slots in enumerate(schedule.stages)
        if position[stage] < len(slots)
    )
    return Timeline(schedule, start, end, max(free, default=0), blocked)
