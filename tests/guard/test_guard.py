"""The guard on real gloo ranks: silent on what is right, and one clear error on every rank else."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)
pytestmark = [pytest.mark.torch, pytest.mark.gloo]
HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the ranks of a scenario said; one process runs them all."""
    folder = tmp_path_factory.mktemp("guard")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    env["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(HERE / "programs.py"), str(folder)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def look(name: str, ranks: int = 2) -> list[dict[str, Any]]:
        places = [folder / f"{name}{rank}.json" for rank in range(ranks)]
        return [json.loads(p.read_text()) if p.exists() else {} for p in places]

    return look


def test_clean_runs_are_silent(said: Any) -> None:
    for rank in said("clean"):
        assert "error" not in rank, rank["trace"]
        for level in ("R", "T3"):
            seen = rank["value"][level]
            assert seen["alarms"] == 0
            assert seen["judged"] > 30
            assert seen["unjudged"] <= 4  # what DDP moves first, and waits for in C++
            assert len(seen["by_op"]) == 17 - 1  # all ops but allgather_coalesced_
        few = rank["value"]["every"]
        assert few["alarms"] == 0
        assert 0 < few["sampled"] < few["calls"] / 4


def test_any_source_is_no_alarm_and_other_strides_are_one(said: Any) -> None:
    for rank in said("odd_calls"):
        assert "error" not in rank, rank["trace"]
        before, alarms = rank["value"]
        assert before == 0
        assert len(alarms) == 1
        assert "failed T3" in alarms[0]


def test_faults_are_found_in_their_step_with_their_rank(said: Any) -> None:
    from tests.guard.programs import FAULTS

    ranks = said("faults")
    assert all("error" not in rank for rank in ranks), ranks
    first, second = (rank["value"] for rank in ranks)
    assert first["rows"] == second["rows"]
    for fault, (text, culprits, in_step) in zip(FAULTS, first["rows"], strict=True):
        assert text, fault
        assert culprits == [fault.rank], (fault, text)
        assert in_step, (fault, text)
        assert "elements" in text or "race" in text, text
    assert "T3" in first["exact"]
    assert all(first["done"] + second["done"])


def test_a_call_without_work_is_judged_before_its_buffer_is_the_programs_again(said: Any) -> None:
    for rank in said("without_work"):
        assert "error" not in rank, rank["trace"]
        alarms, unjudged = rank["value"]
        assert len(alarms) == 1
        assert "ranks 1" in alarms[0]
        assert unjudged == 0


def test_a_guard_that_keeps_its_verdict_is_found_out(said: Any) -> None:
    """Nothing is complete on one rank alone: no rank would raise. (`faults` has both raise.)"""
    assert [rank["value"] for rank in said("verdict_kept")] == [0, 0]


ERRORS = {
    "another_dtype": "ranks meet in different calls.*rank 0: all_reduce sum float32.4., "
    "rank 1: all_reduce sum float64.4.",
    "another_op": "ranks meet in different calls",
    "other_settings": "rank 1 was started with",
    "other_plans": "the ranks disagree on the plan .rank 0: .* rank 1: ",
    "uneven": r"0.weight has shape \[7, 4\], the plan \[8, 4\]",
    "too_few_rows": r"rank 1: 0.weight holds \[0, 4\].*the plan has \[1, 4\]",
    "wrong_dim": r"0.weight holds \[4, 4\].*the plan has \[8, 2\]",
}


@pytest.mark.parametrize("name", ERRORS)
def test_bad_input_is_one_error_on_every_rank(name: str, said: Any) -> None:
    ranks = said(name)
    for rank in ranks:
        assert rank.get("error", "").startswith("GuardError"), rank
        assert re.search(ERRORS[name], rank["error"]), rank["error"]
        assert rank["seconds"] < 25
    assert len({rank["error"] for rank in ranks}) == 1


def test_a_rank_that_comes_late_with_another_call_ends_those_that_called(said: Any) -> None:
    """In the backend already, asynchronous and functional."""
    errors = {rank["error"] for rank in said("another_size_late", 3)}
    assert len(errors) == 1, errors
    assert re.search(r"rank 1: all_reduce sum float32\[5\]", errors.pop())


def test_calls_over_two_groups_may_come_in_opposite_orders(said: Any) -> None:
    for rank in said("orders"):
        assert "error" not in rank, rank["trace"]
        seconds, seen = rank["value"]
        assert seconds < 6  # of courtesy once, and no more
        assert seen["judged"] > 2 * 18
        assert seen["unjudged"] == 0


def test_sums_over_two_groups_in_opposite_orders_end_in_an_error(said: Any) -> None:
    for rank in said("orders_with_sums"):
        assert "same order on all ranks" in rank["error"], rank


def test_the_right_plan_passes(said: Any) -> None:
    assert [rank["value"] for rank in said("right_plan")] == [True, True]


def test_a_rank_that_dies_is_named_on_every_other(said: Any) -> None:
    for name, ranks, left in (("killed", 3, (0, 2)), ("killed_in_a_call", 2, (0,))):
        rows = said(name, ranks)
        assert rows[1] == {}
        for rank in left:
            assert "rank 1 died" in rows[rank]["error"], rows[rank]
            assert rows[rank]["seconds"] < 20


def test_a_rank_that_does_not_come_is_named(said: Any) -> None:
    assert "rank 1 did not come within 2 s" in said("late")[0]["error"]
    assert said("late")[1]["error"].startswith("GuardError")
