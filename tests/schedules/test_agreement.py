"""Schedules with one thing changed: the checks and a step-by-step simulator agree, both ways."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given, settings, strategies as st

from shardproof.synthesis.schedules import GENERATORS, Schedule, Slot, check_schedule, generate
from shardproof.verifier.order.machine import replay
from tests.schedules.simulator import faults


@st.composite
def right(draw: st.DrawFn) -> Schedule:
    """A generated schedule."""
    kind = draw(st.sampled_from(sorted(GENERATORS)))
    stages = draw(st.integers(1, 4))
    chunks = draw(st.integers(1, 3)) if kind == "interleaved_1f1b" else 1
    micro_batches = stages * draw(st.integers(1, 2)) if chunks > 1 else draw(st.integers(1, 5))
    return generate(kind, stages, micro_batches, chunks)


@st.composite
def changed(draw: st.DrawFn) -> Schedule:
    """A generated schedule with two slots swapped, one dropped, moved, doubled or renamed."""
    schedule = draw(right())
    stage = draw(st.integers(0, len(schedule.stages) - 1))
    slots = list(schedule.stages[stage])
    i = draw(st.integers(0, len(slots) - 1))
    match draw(st.sampled_from(["none", "swap", "swap", "next", "move", "drop", "double", "name"])):
        case "swap":
            j = draw(st.integers(0, len(slots) - 1))
            slots[i], slots[j] = slots[j], slots[i]
        case "next" if i + 1 < len(slots):
            slots[i], slots[i + 1] = slots[i + 1], slots[i]
        case "move":
            slots.insert(draw(st.integers(0, len(slots) - 1)), slots.pop(i))
        case "drop":
            slots.pop(i)
        case "double":
            slots.insert(draw(st.integers(0, len(slots))), slots[i])
        case "name" if slots[i].kind != "R":
            m = draw(st.integers(0, schedule.micro_batches))
            slots[i] = Slot(slots[i].kind, m, slots[i].chunk)
        case _:
            pass
    stages = (*schedule.stages[:stage], tuple(slots), *schedule.stages[stage + 1 :])
    return replace(
        schedule,
        stages=stages,
        sends=draw(st.sampled_from(["async", "async", "blocking"])),
        messages=draw(st.sampled_from(["fifo", "tagged"])),
        activations=draw(st.sampled_from([None, None, 1, 2, 3])),
        limit=draw(st.sampled_from([None, schedule.limit])),
    )


@settings(max_examples=150, deadline=None)
@given(right())
def test_generated_schedules_pass(schedule: Schedule) -> None:
    assert check_schedule(schedule) == []
    assert faults(schedule) == set()


@settings(max_examples=300, deadline=None)
@given(changed())
def test_a_changed_schedule_is_refused_exactly_where_a_simulation_goes_wrong(
    schedule: Schedule,
) -> None:
    found = check_schedule(schedule)
    truth = faults(schedule)
    event("wrong" if truth else "right")
    assert bool(found) == bool(truth), (truth, list(map(str, found)))
    checks = {fault.check for fault in found}
    local = checks & {"slots", "order"}
    if not local:
        assert ("memory" in checks) == ("memory" in truth)
        assert ("reduction" in checks) == ("early" in truth) or "hang" in truth
        if "deadlock" in checks:
            assert truth & {"hang", "message"}
        else:
            assert "hang" not in truth
            assert ("messages" in checks) == ("message" in truth)
            assert ("overwritten" in checks) == ("activation" in truth)
    for fault in found:
        if fault.trace is not None:
            replay(fault.trace)
