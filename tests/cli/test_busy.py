"""While a phase runs its seconds are counted, beside those of the last time."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from shardproof.agent.run import events
from shardproof.agent.run.busy import KEPT, LastTime, bar
from shardproof.agent.run.console import Console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(seconds: float) -> None:
    console = Console(Terminal())
    for event in (
        events.RunStarted(command="verify", arguments=["out/"], version="1"),
        events.PhaseStarted(phase="prove"),
        events.PhaseCompleted(phase="prove", seconds=seconds),
        events.RunCompleted(verdict="proved", exit_code=0, seconds=seconds),
    ):
        console.show(event)
    console.close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "shardproof" / "phases.json"


def test_the_last_run_of_a_command_line_gives_the_estimate(cache: Path) -> None:
    run(7.6)
    assert LastTime("verify out/").estimate("prove") == "of about 8 s"
    assert LastTime("verify out/").estimate("load") == ""
    assert LastTime("verify other/").estimate("prove") == ""
    run(0.4)
    assert LastTime("verify out/").estimate("prove") == ""


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"verify out/": 3}', '{"a": {"b": "c"}}'])
def test_a_file_that_cannot_be_read_is_as_none(cache: Path, text: str) -> None:
    cache.parent.mkdir()
    cache.write_text(text)
    run(3.0)
    assert LastTime("verify out/").estimate("prove") == "of about 3 s"


def test_a_folder_that_cannot_be_written_stops_nothing(cache: Path) -> None:
    cache.parent.write_text("")
    run(3.0)
    assert LastTime("verify out/").estimate("prove") == ""


def test_the_file_does_not_grow_without_end(cache: Path) -> None:
    for i in range(KEPT + 5):
        last = LastTime(f"verify {i}")
        last.taken["prove"] = 9.0
        last.keep()
    assert len(LastTime("").lines) == KEPT
    assert LastTime(f"verify {KEPT + 4}").estimate("prove")


def test_seconds_and_estimate_are_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Terminal()
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.setenv("TERM", "xterm")
    bar("read x[4]", "of about 8 s").stop()
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", told.getvalue())
    assert re.search(r"read x\[4\] +0:00:00 of about 8 s", plain)
