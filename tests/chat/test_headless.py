"""`-p`, `resume` and `replay` as processes: streams, exit codes, the last event."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardproof.agent.chat import headless
from shardproof.agent.chat.engine import Session
from tests.chat.conftest import COMMAND, LOAD, environment


def _run(home: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=home,
        env=environment(home.parent, NO_COLOR="1"),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (f"{LOAD}\n/verify\n/repair", 0),
        (f"{LOAD}\n/verify", 1),
        ("/frob\n/mesh tp=2", 2),
        ("hello there", 3),
        (f"{LOAD}\n/verify\n/quit\n/frob", 1),
    ],
)
def test_exit_codes_are_the_same_with_and_without_json(
    lines: str, code: int, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del home
    assert headless.run(Session.new, [lines], json=False) == code
    capsys.readouterr()
    assert headless.run(Session.new, lines.split("\n"), json=True) == code
    told = capsys.readouterr()
    parsed = [json.loads(line) for line in told.out.splitlines()]
    assert [e["event"] for e in parsed].count("run.completed") == 1
    assert parsed[-1]["event"] == "run.completed"
    assert parsed[-1]["exit_code"] == code
    assert told.err == ""
    assert not any(e.get("input") == "/mesh tp=2" for e in parsed), "2 ends the run"


def test_lines_that_follow_each_other_are_one_message() -> None:
    given = ["/mesh tp=2\nwhy is it\nso slow?\n\n/plan", "and then?", "/cost"]
    assert list(headless.inputs(given)) == [
        "/mesh tp=2",
        "why is it\nso slow?",
        "/plan",
        "and then?",
        "/cost",
    ]


def test_answers_go_to_stdout_and_progress_to_stderr(home: Path) -> None:
    done = _run(home, "-p", f"{LOAD}\n/verify\n/diff")
    assert "refuted: output:out[0, 0]" in done.stdout
    assert "verify " not in done.stdout
    assert "verify " in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_a_session_of_a_script_is_resumed_and_replayed(home: Path) -> None:
    assert _run(home, "-p", LOAD).returncode == 0
    assert _run(home, "resume", "-p", "/verify\n/save t.jsonl").returncode == 0
    listed = _run(home, "resume", "--list")
    assert "3 steps  wrong.txt" in listed.stdout
    name = listed.stdout.split()[0]
    assert "refuted" in _run(home, "resume", name[:12], "-p", "/verify").stdout
    again = _run(home, "replay", "t.jsonl", "--json")
    assert again.returncode == 0, again.stdout
    assert json.loads(again.stdout.splitlines()[-1])["event"] == "run.completed"
    text = (home / "t.jsonl").read_text().replace("got 2", "got 3")
    (home / "t2.jsonl").write_text(text)
    differs = _run(home, "replay", "t2.jsonl")
    assert (differs.returncode, differs.stdout) == (1, "differs\n")
    assert "step 2, /verify" in differs.stderr


def test_resume_goes_on_with_the_newest_session_in_which_something_was_loaded(home: Path) -> None:
    assert _run(home, "-p", LOAD).returncode == 0
    assert _run(home, "-p", "/verify").returncode == 2
    assert "refuted" in _run(home, "resume", "-p", "/verify").stdout


def test_bare_without_a_terminal_is_help_and_a_hint(home: Path) -> None:
    done = _run(home)
    assert done.returncode == 2
    assert done.stdout.startswith("Usage: ")
    assert done.stderr == (
        "shardproof alone needs a terminal; for scripts: -p INPUT, or a command of the list\n"
    )
    assert not (home.parent / "state").exists()
    refused = _run(home, "resume", "nothing")
    assert refused.returncode == 2
    assert "no such session" in refused.stderr


def test_a_state_folder_that_cannot_be_written_is_one_error(home: Path) -> None:
    (home.parent / "state").write_text("")  # a file where a folder must be
    done = _run(home, "-p", "/mesh tp=2", "--json")
    assert done.returncode == 2
    parsed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [e["event"] for e in parsed] == ["run.started", "error", "run.completed"]
    assert "XDG_STATE_HOME" in parsed[1]["hint"]


KILLED = """
import os, pathlib, signal, sys
real = pathlib.Path.replace
def replace(self, target):
    real(self, target)
    if str(target).endswith("home/wrong.txt"):
        os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.replace = replace
from shardproof.agent.cli.main import main
main()
"""


def test_a_kill_inside_apply_loses_that_step_alone(home: Path) -> None:
    before = (home / "wrong.txt").read_bytes()
    env = environment(home.parent)

    def run(*words: str, code: str = "") -> subprocess.CompletedProcess[str]:
        argv = (sys.executable, "-c", code) if code else COMMAND
        given = [*argv, *words]
        return subprocess.run(given, cwd=home, env=env, capture_output=True, text=True, timeout=60)

    killed = run("-p", LOAD, "-p", "/repair", "-p", "/apply --yes", code=KILLED)
    assert killed.returncode == -9, killed.stderr
    assert (home / "wrong.txt").read_bytes() != before, "killed after the file was replaced"
    on = run("resume", "-p", "/diff")
    assert "a step that never ended: /apply --yes" in on.stderr
    assert "standing" in on.stderr or "proved" in on.stdout, "the repair is not lost"
    again = run("resume", "-p", "/apply --yes", "-p", "/verify")
    assert again.returncode == 0, again.stderr
    assert "proved" in again.stdout
    assert run("resume", "-p", "/undo").returncode == 0
    assert (home / "wrong.txt").read_bytes() == before
