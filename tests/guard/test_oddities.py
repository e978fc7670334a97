"""No alarm and no crash where right programs do what is rare; clear words where programs end."""

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
NAMES = (
    "changed_results", "manual_steps", "groups_come_and_go", "threads", "errors_of_its_own",
    "compiled_optimizer", "raised_unwatched", "over_before", "over_together",
)  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the ranks of a scenario said."""
    folder = tmp_path_factory.mktemp("oddities")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    env["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(HERE / "programs.py"), str(folder), *NAMES]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def look(name: str, right: bool = True) -> list[Any]:
        places = [folder / f"{name}{rank}.json" for rank in range(2)]
        rows = [json.loads(p.read_text()) if p.exists() else {} for p in places]
        for rank in rows if right else ():
            assert "error" not in rank, rank["trace"]
        return [rank["value"] for rank in rows] if right else rows

    return look


def test_results_that_the_program_changed_are_judged_before_or_not_at_all(said: Any) -> None:
    for rank in said("changed_results"):
        assert rank["all"]["alarms"] == 0
        assert rank["polled"]["judged"] == 6  # and the canary
        assert rank["polled"]["unjudged"] == 0
        assert rank["all"]["unjudged"] >= 5
        assert rank["left"] == 0


def test_steps_that_the_program_names_are_the_same_on_all_ranks(said: Any) -> None:
    for rank in said("manual_steps"):
        assert rank["steps"] == 21
        assert rank["alarms"] == rank["unjudged"] == 0
        assert rank["judged"] > 9
        assert rank["gone"] >= 58  # the backend may be about to let go of the last


def test_groups_that_are_gone_are_forgotten_and_two_backends_are_counted(said: Any) -> None:
    for rank in said("groups_come_and_go"):
        assert rank["alarms"] == rank["unjudged"] == 0
        assert rank["known"] <= 3
        assert rank["counted"] >= 60
        assert rank["watched"] < rank["steps"] / 2  # their members are aligned


def test_a_thread_beside_the_steps_is_no_alarm(said: Any) -> None:
    for rank in said("threads"):
        assert rank["wrong"] == []
        assert rank["alarms"] == 0
        assert rank["judged"] > 5
        assert rank["wide"] < 8


def test_errors_of_the_program_are_its_own_and_guards_share_nothing(said: Any) -> None:
    for at, rank in enumerate(said("errors_of_its_own")):
        own, failed, found, late = rank
        assert (own, failed) == ("RuntimeError", "")
        assert "failed H" in found
        assert "different calls" not in late
        assert "rank 1 did not come" in late, at


def test_a_compiled_optimizer_ends_a_step_too(said: Any) -> None:
    for rank in said("compiled_optimizer"):
        assert rank["steps"] == 4
        assert rank["judged"] == 4


def test_a_rank_that_ends_for_itself_says_why(said: Any) -> None:
    raised, own = said("raised_unwatched", False)
    assert own["error"] == "ValueError: batch 17 is bad"
    assert re.search("rank 1 said: ValueError: batch 17 is bad", raised["error"])
    waited, over = said("over_before", False)
    assert over == {}
    assert "rank 1 said: its program is over" in waited["error"]
    assert waited["seconds"] < 15


def test_what_is_left_at_the_end_of_all_programs_is_judged(said: Any) -> None:
    assert said("over_together") == [1, 1]
