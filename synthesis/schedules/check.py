"""Whether a schedule is right: every slot there, in an order that works, with memory that lasts."""

from collections.abc import Iterator
from dataclasses import dataclass

from shardproof.synthesis.schedules.slots import Schedule, Slot, in_flight
from shardproof.synthesis.schedules.steps import to_events
from shardproof.synthesis.schedules.text import read_slot
from shardproof.synthesis.schedules.timeline import needs, timeline
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.types import Source
from shardproof.verifier.order.matching import Place
from shardproof.verifier.order.verify import verify_time
from shardproof.verifier.order.violation import Trace, Violation

LARGEST = 1_000_000
"""Slots that a schedule may need."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a schedule."""

    check: str
    """`slots`, `order`, `reduction`, `deadlock`, `messages`, `overwritten` or `memory`."""
    message: str
    stage: int
    position: int
    """Of the slot on its stage, from 0; -1 where it is missing."""
    slot: Slot
    source: Source
    trace: Trace | None = None
    """An execution that shows it, where there is one."""

    def __str__(self) -> str:
        where = f"{self.source}: " if str(self.source) else ""
        at = f"stage {self.stage}"
        if self.position >= 0:
            at += f", slot {self.position + 1} ({self.slot})"
        return f"{where}{self.check}: {at}: {self.message}"


def check_schedule(schedule: Schedule) -> list[Fault]:
    """Every fault; none: each micro-batch goes forward and backward through all parts of the model,
    no stage hangs, every backward finds its activations, and gradients are reduced when complete.

    Slots and their order are looked at first; only where they are right, the schedule is run as
    events.

    Raises:
        MalformedError: a schedule that needs more than a million slots.
    """
    wanted = schedule.micro_batches * schedule.chunks * len(schedule.stages) * 3
    if wanted > LARGEST:
        raise MalformedError("a schedule", expected=f"at most {LARGEST} slots", got=str(wanted))
    faults = [fault for find in LOCAL for fault in find(schedule)]
    if any(fault.check in ("slots", "order") for fault in faults):
        return faults
    hangs = list(_circle(schedule))
    return [*faults, *(hangs or _in_time(schedule))]


def _fault(
    check: str,
    schedule: Schedule,
    stage: int,
    position: int,
    message: str,
    slot: Slot | None = None,
    trace: Trace | None = None,
) -> Fault:
    slot = slot or schedule.stages[stage][position]
    return Fault(check, message, stage, position, slot, schedule.source(stage), trace)


def _slots(schedule: Schedule) -> Iterator[Fault]:
    """Every slot once on every stage; a reduction on all stages or on none."""
    wanted = list(schedule.wanted())
    known = set(wanted)
    reduces = any(slot.kind == "R" for stage in schedule.stages for slot in stage)
    for stage, slots in enumerate(schedule.stages):
        first: dict[Slot, int] = {}
        for position, slot in enumerate(slots):
            if slot.kind != "R" and slot not in known:
                why = f"micro-batches go to {schedule.micro_batches - 1}, "
                why += f"chunks to {schedule.chunks - 1}"
                yield _fault("slots", schedule, stage, position, why)
            elif slot in first:
                why = f"the same as slot {first[slot] + 1}"
                yield _fault("slots", schedule, stage, position, why)
            first.setdefault(slot, position)
        for slot in [*wanted, *([Slot("R")] if reduces else [])]:
            if slot not in first:
                yield _fault("slots", schedule, stage, -1, f"{slot} is missing", slot)


def _order(schedule: Schedule) -> Iterator[Fault]:
    """On its stage, a backward comes after its forward, a weight gradient after its backward."""
    before = {"B": "F", "W": "B"}
    for stage, slots in enumerate(schedule.stages):
        first = _positions(slots)
        for position, slot in enumerate(slots):
            if slot.kind in before:
                needed = Slot(before[slot.kind], slot.micro_batch, slot.chunk)
                if first.get(needed, -1) > position:
                    why = f"needs {needed}, which comes only in slot {first[needed] + 1}"
                    yield _fault("order", schedule, stage, position, why)


def _reduction(schedule: Schedule) -> Iterator[Fault]:
    """Gradients are reduced after the last slot that adds to them."""
    adds = "W" if schedule.split else "B"
    for stage, slots in enumerate(schedule.stages):
        for position, slot in enumerate(slots):
            if slot.kind != "R":
                continue
            later = [s for s in slots[position:] if s.kind == adds]
            if later:
                why = f"reduces gradients to which {later[0]} is still to be added"
                yield _fault("reduction", schedule, stage, position, why)


def _memory(schedule: Schedule) -> Iterator[Fault]:
    """No stage keeps more activations than it may."""
    for stage, limit in enumerate(schedule.limit or ()):
        kept = in_flight(schedule, stage)
        if kept.peak > limit:
            why = f"keeps activations of {kept.peak} micro-batches, may keep {limit}"
            yield _fault("memory", schedule, stage, kept.at, why)


LOCAL = (_slots, _order, _reduction, _memory)


def _circle(schedule: Schedule) -> Iterator[Fault]:
    """Slots that wait for each other though nobody waits for messages to be taken."""
    blocked = dict(timeline(schedule).blocked)
    if not blocked:
        return
    done = {
        (stage, slot)
        for stage, slots in enumerate(schedule.stages)
        for slot in slots[: blocked.get(stage, len(slots))]
    }
    for stage, position in blocked.items():
        slot = schedule.stages[stage][position]
        other, needed = next(key for key in needs(schedule, stage, slot) if key not in done)
        at = blocked[other]
        why = f"waits for {needed} of stage {other}, which is stuck at {schedule.stages[other][at]}"
        yield _fault("deadlock", schedule, stage, position, why)


_NAMES = {
    "deadlock": "deadlock",
    "p2p_order": "messages",
    "dependency": "overwritten",
}


def _in_time(schedule: Schedule) -> Iterator[Fault]:
    """What the events of the schedule do wrong."""
    positions = [_positions(slots) for slots in schedule.stages]
    for violation in verify_time(to_events(schedule)):
        name = _NAMES.get(violation.check, violation.check)
        place = violation.events[0]
        slot = _slot_of(place)
        position = positions[place.rank].get(slot, -1)
        why = _say(violation, name)
        yield _fault(name, schedule, place.rank, position, why, slot, violation.trace)


def _say(violation: Violation, name: str) -> str:
    if name == "overwritten":
        last = violation.events[-1]
        return f"its activations were overwritten by {_slot_of(last)}"
    if name == "deadlock":
        shown = ", ".join(f"{p.event.label} on stage {p.rank}" for p in violation.events)
        return f"{violation.message}: {shown}"
    return violation.message


def _slot_of(place: Place) -> Slot:
    """The slot that an event of `to_events` belongs to."""
    return read_slot(place.event.label.rsplit("_", 1)[-1] or "R")


def _positions(slots: tuple[Slot, ...]) -> dict[Slot, int]:
    """Where each slot first is."""
    return {slots[i]: i for i in reversed(range(len(slots)))}
