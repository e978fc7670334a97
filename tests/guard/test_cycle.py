"""Steps that are not watched: what they cost, what is said of them, and that no call is compared
with another."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)

from shardproof.synthesis.guard.cycle import PLACE, Cycle, aligned
from shardproof.synthesis.guard.errors import GuardError, after_uncaught
from shardproof.synthesis.guard.settings import Settings

pytestmark = [pytest.mark.torch, pytest.mark.gloo]
HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NAMES = ("watched_steps", "other_sides", "killed_unwatched", "group_made_unwatched")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the ranks of a scenario said."""
    folder = tmp_path_factory.mktemp("cycle")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    env["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(HERE / "programs.py"), str(folder), *NAMES]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def look(name: str, ranks: int = 2) -> list[dict[str, Any]]:
        places = [folder / f"{name}{rank}.json" for rank in range(ranks)]
        return [json.loads(p.read_text()) if p.exists() else {} for p in places]

    return look


def test_one_step_of_a_cycle_is_watched_and_the_others_have_no_kernels(said: Any) -> None:
    ranks = said("watched_steps", 3)
    for rank in ranks:
        assert "error" not in rank, rank["trace"]
        clean, wide = rank["value"]["clean"], rank["value"]["wide"]
        cycle = Cycle(1, 4)
        # the last one: what comes after the last optimizer's step
        assert wide == [cycle.takes(step) for step in range(len(wide))]
        assert 41 // 4 <= sum(wide) <= 41 // 4 + 3
        assert clean["watched"] in (sum(wide), sum(wide) + 1)
        assert clean["alarms"] == 0
        assert clean["unjudged"] <= 2 * (41 // 8 + 1)  # messages that rank 0 receives
        assert 0.7 < clean["sampled"] / (41 * (8 + 2) / 8) < 1.6
    assert ranks[0]["value"]["wide"] == ranks[1]["value"]["wide"]


def test_a_fault_is_found_in_a_step_that_is_watched(said: Any) -> None:
    ranks = said("watched_steps", 3)
    assert ranks[0]["value"]["rows"] == ranks[1]["value"]["rows"]
    rows = ranks[0]["value"]["rows"]
    assert sum(drawn for drawn, *_ in rows) > 5
    for drawn, text, in_its_step in rows:
        assert bool(text) == drawn
        if drawn:
            assert in_its_step
            assert re.search(r"failed H.*ranks 1; ", text), text


def test_ranks_that_call_on_other_sides_of_a_step_are_watched_always(said: Any) -> None:
    for rank in said("other_sides"):
        assert "error" not in rank, rank["trace"]
        seen = rank["value"]
        assert seen["alarms"] == 0
        assert seen["watched"] == seen["steps"] == 13
        assert seen["calls"] == 12


def test_a_rank_that_dies_in_a_step_that_is_not_watched_is_named(said: Any) -> None:
    alive, dead = said("killed_unwatched")
    assert dead == {}
    assert re.search(r"^GuardError: .*rank 1 died", alive["error"]), alive
    assert alive["seconds"] < 20


def test_first_calls_are_compared_in_a_step_that_is_not_watched(said: Any) -> None:
    errors = {rank["error"] for rank in said("group_made_unwatched")}
    assert len(errors) == 1
    assert "ranks meet in different calls, call 1" in errors.pop()


def _row(*rows: tuple[int, int, int]) -> bytes:
    return np.array(list(rows), PLACE).tobytes()


@pytest.mark.parametrize(
    ("rows", "right"),
    [
        ([b"", b""], True),
        ([_row((7, 2, 5)), _row((7, 2, 5)), b""], True),
        ([_row((7, 2, 5), (8, 2, 1)), _row((7, 2, 5)), _row((8, 2, 1))], True),
        ([_row((7, 2, 5)), _row((7, 2, 6))], False),
        ([_row((7, 2, 5)), b""], False),
        ([_row((7, 2, -1)), _row((7, 2, -1))], False),
    ],
)
def test_members_of_a_group_are_aligned_where_they_counted_alike(
    rows: list[bytes], right: bool
) -> None:
    assert aligned(rows) is right


def test_one_step_of_every_cycle_is_drawn() -> None:
    cycle = Cycle(3, 10)
    drawn = [step for step in range(1000) if cycle.takes(step)]
    assert sorted({step // 10 for step in drawn}) == list(range(100))
    assert len(drawn) - 100 == (drawn[0] == 0 and drawn[1] < 10)  # the first one is watched, too
    assert len({step % 10 for step in drawn}) == 10


@pytest.mark.parametrize(
    ("every", "cycle", "between"), [(1, 1, 1), (19, 1, 8), (20, 2, 1), (100, 10, 1), (9999, 10, 1)]
)
def test_cycles_follow_from_how_many_calls_are_looked_at(
    every: int, cycle: int, between: int
) -> None:
    settings = Settings(every=every)
    assert (settings.cycle, settings.between) == (cycle, between)
    with pytest.raises(GuardError, match="cycle=-1"):
        Settings(every=every, cycle=-1)


def test_an_error_that_nobody_caught_is_explained_after_its_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", lambda *_: sys.stderr.write("traceback\n"))
    told: list[BaseException] = []
    gone = GuardError("rank 1 died")
    undo = after_uncaught(told.append, lambda e: gone if "gloo" in str(e) else e)
    for error in (RuntimeError("gloo: closed"), ValueError("mine")):
        sys.excepthook(type(error), error, None)
    assert capsys.readouterr().err == ("traceback\nshardproof guard: rank 1 died\ntraceback\n")
    assert [str(e) for e in told] == ["gloo: closed", "mine"]
    undo()
    sys.excepthook(RuntimeError, RuntimeError("gloo"), None)
    assert capsys.readouterr().err == "traceback\n"
