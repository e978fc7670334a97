"""Schedules and messages of pipelines."""

from __future__ import annotations

import pytest

from verifier import (
    ActivationTracker,
    DeadlockChecker,
    DistributedVerifier,
    OpType,
    PP1F1BSchedule,
)


@pytest.mark.parametrize(("stages", "micro"), [(1, 1), (2, 4), (4, 8), (8, 3)])
def test_one_forward_one_backward_is_right(stages: int, micro: int) -> None:
    schedule = PP1F1BSchedule(stages, micro)
    ok, errors = DeadlockChecker().verify_schedule(schedule.generate())
    assert ok, errors
    assert schedule.peak_activations() == [min(stages - s, micro) for s in range(stages)]
    assert DeadlockChecker().verify_schedule(schedule.generate_simple())[0]


def test_no_backward_comes_before_what_it_needs() -> None:
    done: set[tuple[str, int, int]] = set()
    for step in PP1F1BSchedule(4, 8).generate():
        word, before = ("F", -1) if step.op_type is OpType.FORWARD else ("B", 1)
        if 0 <= step.stage_id + before < 4:
            assert (word, step.stage_id + before, step.mb_id) in done
        done.add((word, step.stage_id, step.mb_id))


def test_a_lost_message_is_refused() -> None:
    steps = PP1F1BSchedule(2, 2).generate()
    next(s for s in steps if s.sends).sends.clear()
    ok, errors = DeadlockChecker().verify_schedule(steps)
    assert not ok
    assert "receives" in " ".join(errors)


def test_a_backward_before_its_forward_is_refused() -> None:
    steps = PP1F1BSchedule(2, 2).generate()
    assert not ActivationTracker(2).run(steps[::-1])
    assert ActivationTracker(2).run(steps)
    assert not ActivationTracker(4, max_activations_per_stage=3).run(
        PP1F1BSchedule(4, 8).generate()
    )


def test_the_question_of_deadlock() -> None:
    verifier = DistributedVerifier()
    assert verifier.verify_pp_deadlock_free(PP1F1BSchedule(4, 8)).passed
    assert verifier.verify_pp_deadlock_free([], [(0, 1, "a")], [(0, 1, "a")]).passed
    assert not verifier.verify_pp_deadlock_free([], [(0, 1, "a")], []).passed
    assert not verifier.verify_pp_deadlock_free([], [], []).passed
