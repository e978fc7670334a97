"""A session on disk: cut anywhere, killed anywhere, it goes on from its last whole step."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardproof.agent.chat import journal
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.state import State
from shardproof.agent.chat.workspace import unpacked
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from tests.chat.conftest import LOAD, Begin, Talk, environment

LINES = ("/mesh tp=2", LOAD, "/verify", "/cex", "/pin up column", "/frob", "/repair", "/cex")


def _recorded(begin: Begin) -> tuple[Talk, list[State]]:
    """A session of some steps, and its state after each."""
    talk = begin()
    states = [talk.session.state]
    for line in LINES:
        talk(line)
        states.append(talk.session.state)
    talk.session.close()
    return talk, states


def test_a_journal_cut_at_any_byte_gives_the_state_of_its_last_whole_step(
    begin: Begin, tmp_path: Path
) -> None:
    talk, states = _recorded(begin)
    data = talk.session.journal.path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    cuts = {e + d for e in ends for d in (-1, 0, 1)} | set(range(0, len(data), 997))
    torn = tmp_path / "torn.jsonl"
    for cut in sorted(c for c in cuts if c >= ends[1]):
        torn.write_bytes(data[:cut])
        past = journal.read(torn)
        assert past.state == states[past.done]
        assert past.whole == max(e for e in ends if e <= cut)
        begun = data[: past.whole].count(b'"event":"step.started"')
        assert past.steps == begun
        assert bool(past.lost) == (begun > past.done)
        if past.lost:
            assert past.lost == LINES[past.done]
    torn.write_bytes(data[: ends[0]])
    with pytest.raises(InputError, match="no session"):
        journal.read(torn)


def test_a_torn_session_goes_on_and_its_journal_stays_whole(begin: Begin) -> None:
    talk, states = _recorded(begin)
    path = talk.session.journal.path
    data = path.read_bytes()
    third = data.index(b'"step":3,"exit_code"')
    path.write_bytes(data[: third + 5])  # in the middle of the end of /verify
    again = begin(resume=talk.session.journal.folder)
    opened = again.heard.of(events.SessionOpened)[0]
    assert (opened.how, opened.lost) == ("resumed", "/verify")
    assert again.session.state == states[2]
    assert again("/verify").outcome.verdict == "refuted"
    assert again.session.state == states[3]
    again.session.close()
    past = journal.read(path)
    assert past.steps == 4, "the lost step keeps its number"
    assert past.lost == ""


def test_a_line_that_is_no_event_is_named(begin: Begin) -> None:
    talk, _ = _recorded(begin)
    path = talk.session.journal.path
    lines = path.read_bytes().split(b"\n")
    lines[4] = lines[4].replace(b'"event"', b'"evnt"')
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError) as caught:
        Session.resumed(path.parent, [])
    assert caught.value.where == f"{path}:5"


def test_a_part_that_was_changed_is_not_used(begin: Begin) -> None:
    talk, _ = _recorded(begin)
    folder = talk.session.journal.folder
    for artifact in (folder / "artifacts").iterdir():
        artifact.write_bytes(artifact.read_bytes() + b" ")
    again = begin(resume=folder)
    assert again("/verify").outcome.exit is Exit.INPUT
    assert "was changed" in again.heard.problem.message


def test_one_process_holds_a_session(begin: Begin) -> None:
    talk = begin()
    talk("/mesh tp=2")
    with pytest.raises(InputError, match="open in another process"):
        Session.resumed(talk.session.journal.folder, [])
    talk.session.close()
    begin(resume=talk.session.journal.folder)


def test_a_fork_goes_on_and_leaves_the_other_as_it_is(begin: Begin) -> None:
    talk = begin()
    talk(LOAD)
    talk("/verify")
    talk("/fork")
    before = talk.session.state
    other = talk.session.moved([talk.heard])
    assert other.state == before
    assert other.id != talk.session.id
    assert other.opened.origin == talk.session.id
    assert other.opened.lost == ""
    other.do("/repair")
    other.close()
    assert journal.read(talk.session.journal.path).state == before


SLOW = """
import sys, time
from shardproof.agent.chat import repairs as repairing
repairing.fix = lambda *_: (print("slow", file=sys.stderr, flush=True), time.sleep(60))
sys.argv = ["shardproof", "-p", "-", "--json"]
from shardproof.agent.cli.main import main
main()
"""


def _process(home: Path, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=home,
        env=environment(home.parent),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_kill_9_in_a_step_loses_that_step_alone(home: Path, begin: Begin) -> None:
    child = _process(home, "-c", SLOW)
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdin.write(f"{LOAD}\n/verify\n/pin up column\n/repair\n")
    child.stdin.flush()
    assert child.stderr.readline() == "slow\n"
    os.kill(child.pid, signal.SIGKILL)
    told = [json.loads(line) for line in child.communicate()[0].splitlines()]
    kept = next(journal.folder_of_all().iterdir())
    again = begin(resume=kept)
    opened = again.heard.of(events.SessionOpened)[0]
    assert opened.lost == "/repair"
    state = again.session.state
    assert state.judged is not None
    assert state.judged.verdict == "refuted"
    assert [w.words for w in state.constraints] == ["up=column"]
    past = [e.model_dump(mode="json") for e in journal.read(kept / journal.JOURNAL).seen]
    assert past[: len(told)] == told, "what was told is what is kept"
    assert again("/cex").outcome.exit is Exit.PROVED


def test_kill_9_at_any_time_leaves_a_session_that_goes_on(home: Path) -> None:
    rng = random.Random(7)
    script = "\n".join([LOAD, "/verify", *(f"/pin m{i} row" for i in range(400))])
    for _ in range(2):
        child = _process(home, "-m", "shardproof", "-p", "-", "--json")
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(script + "\n")
        child.stdin.flush()
        while json.loads(child.stdout.readline())["event"] != "verdict":
            pass
        time.sleep(rng.random() * 0.3)
        child.kill()
        child.communicate()
        newest = max(journal.folder_of_all().iterdir(), key=lambda p: p.stat().st_mtime)
        past = journal.read(newest / journal.JOURNAL)
        pins = [w.words for w in past.state.constraints]
        assert pins == [f"m{i}=row" for i in range(len(pins))]
        assert past.done == 2 + len(pins) or (past.done, pins) == (1, [])
        session = Session.resumed(newest, [])
        assert session.do("/pin").outcome.exit is Exit.PROVED
        session.close()


def test_a_captured_model_of_another_version_is_refused_in_words() -> None:
    with pytest.raises(InputError, match="another version"):
        unpacked('{"captured": {}, "consts": ""}')
