"""A step in time agrees with the schedule's facts and with the closed form of the price."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from shardproof.synthesis.strategy.choice import choose, priced
from shardproof.synthesis.strategy.search import Search
from shardproof.synthesis.strategy.space import Region
from shardproof.synthesis.strategy.timeline import Step, step_in_time, trace_events
from tests.strategy.models import LLAMA_8B, space

WHOLE = space(LLAMA_8B, 16, 64, seq=8192)


def drawn(schedule: str, chunks: int = 1, pp: int = 4) -> tuple[Step, float]:
    """A step on `pp` stages, and its price."""
    plan = WHOLE.plan(Region(2, 1, 1, pp, 8 // pp, 2), "none", (0, 8 // pp), (schedule, chunks))
    found = priced(WHOLE, plan)
    step = step_in_time(WHOLE.machine, WHOLE.fitted(plan.tp), plan)
    assert step is not None
    assert step.drawn == step.micro_batches
    return step, found.step_s


@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("1f1b", 2), ("zb-1p", 1)])
@pytest.mark.parametrize("pp", [1, 4])
def test_length_is_that_of_the_price(schedule: str, chunks: int, pp: int) -> None:
    step, seconds = drawn(schedule, chunks if pp > 1 else 1, pp)
    assert step.seconds == pytest.approx(seconds, rel=0.08)


def test_nothing_of_a_stage_overlaps_and_backwards_come_after_forwards() -> None:
    step, _ = drawn("zb-2p")
    for stage in range(4):
        spans = sorted((s for s in step.spans if s.stage == stage), key=lambda s: s.start_s)
        for before, after in itertools.pairwise(spans):
            assert before.start_s + before.seconds <= after.start_s + 1e-6
        at = {s.name: s.start_s for s in spans}
        assert all(at[f"F{m}"] < at[f"B{m}"] < at[f"W{m}"] for m in range(step.drawn))


@pytest.mark.parametrize(("schedule", "twice"), [("1f1b", False), ("zb-2p", True)])
def test_memory_peaks_where_the_schedule_keeps_most(schedule: str, twice: bool) -> None:
    step, _ = drawn(schedule)
    peak = [max(h for stage, _, h in step.held if stage == s) for s in range(4)]
    first, last = peak[0], peak[-1]
    assert first == max(peak)
    assert (last == pytest.approx(first)) == twice
    ends = [[h for stage, _, h in step.held if stage == s][-1] for s in range(4)]
    assert len({round(e) for e in ends}) == 1
    assert ends[0] < last


def test_a_schedule_without_generator_is_not_drawn() -> None:
    plan = WHOLE.plan(Region(2, 1, 1, 4, 2, 2), "none", (0, 2), ("dualpipe", 1))
    assert step_in_time(WHOLE.machine, WHOLE.fitted(2), plan) is None


def test_trace_events_tell_stages_of_several_steps_apart() -> None:
    step, _ = drawn("1f1b")
    events = trace_events({"one": step, "two": step})["traceEvents"]
    named = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert sorted(named.values())[::4] == ["one, stage 0", "two, stage 0"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == 2 * len(step.spans)
    assert max(e["ts"] + e["dur"] for e in spans) == pytest.approx(step.seconds * 1e6)
    assert {e["pid"] for e in events if e["ph"] == "C"} == set(named)


def test_front_is_the_fastest_with_less_and_less_memory() -> None:
    found = choose(WHOLE).front
    assert len(found) > 2
    for before, after in itertools.pairwise(found):
        limit = before.price.memory.total * 0.9
        assert after.price.memory.total <= limit
        device = replace(WHOLE.machine.cluster.device, memory_bytes=limit)
        cluster = replace(WHOLE.machine.cluster, device=device)
        small = replace(WHOLE, machine=replace(WHOLE.machine, cluster=cluster))
        every = [f.step_s for f in Search(small).plans()]
        assert after.step_s == pytest.approx(min(every))
        assert after.step_s >= before.step_s
