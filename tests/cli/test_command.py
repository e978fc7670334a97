"""The command as a whole: help, start-up, its stream of events, faults and interrupts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shardproof.agent.run import events
from tests.commands import COMMAND, Command, environment

FIRST = ("parallelize", "check", "verify", "apply", "batch", "chat")
COMMANDS = (*FIRST, "plan", "capture", "doctor", "ops")
HEAVY = ("torch", "z3", "numpy", "rich", "openai", "jinja2", "networkx")


def test_help_names_every_command(command: Command) -> None:
    done = command("--help")
    assert done.code == 0
    first, more = done.out.split("Commands:")[1].split("More:")
    assert [line.split()[0] for line in first.splitlines() if line] == list(FIRST)
    assert not any(f"\n  {name} " in more for name in FIRST)
    assert all(f"\n  {name} " in more for name in COMMANDS if name not in FIRST)
    assert "..." not in first


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_shows_an_example(command: Command, name: str) -> None:
    done = command(name, "--help")
    assert done.code == 0
    assert "Example" in done.out
    assert f"shardproof {name}" in done.out


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv = ['shardproof', '--help']\n"
        "from shardproof.agent.cli.main import main\n"
        f"try:\n    main()\nfinally:\n    print(sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_json_is_one_event_a_line_and_ends_in_run_completed(command: Command) -> None:
    done = command("doctor", "--json")
    parsed = [events.parse(line) for line in done.out.splitlines()]
    assert parsed[0].event == "run.started"
    assert parsed[-1].event == "run.completed"
    assert [e.event for e in parsed].count("run.completed") == 1
    assert {e.schema_version for e in parsed} == {events.SCHEMA_VERSION}
    assert done.err == ""


def test_progress_goes_to_stderr_and_the_answer_to_stdout(command: Command) -> None:
    done = command("doctor")
    assert "z3-solver" in done.out
    assert "z3-solver" not in done.err
    assert "\x1b" not in done.err


def _main(code: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command with a piece of it replaced first."""
    text = f"import sys\nsys.argv = {['shardproof', *arguments]!r}\n{code}\n"
    text += "from shardproof.agent.cli.main import main\nmain()\n"
    return subprocess.run(
        [sys.executable, "-c", text],
        env=environment(TMPDIR=str(folder)),
        capture_output=True,
        text=True,
    )


def test_a_fault_of_ours_saves_its_traceback_and_exits_70(tmp_path: Path) -> None:
    broken = "import shardproof.agent.cli.doctor\nshardproof.agent.cli.doctor.parts = lambda: 1 / 0"
    done = _main(broken, "doctor", "--json", folder=tmp_path)
    assert done.returncode == 70
    problem, last = (events.parse(line) for line in done.stdout.splitlines()[-2:])
    assert isinstance(problem, events.Problem)
    assert problem.kind == "internal"
    assert "ZeroDivisionError" in Path(problem.traceback_file).read_text()
    assert isinstance(last, events.RunCompleted)
    assert (last.exit_code, last.verdict) == (70, "unknown")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_an_interrupt_exits_130(tmp_path: Path, signal: str) -> None:
    code = (
        "import os, signal, time, shardproof.agent.cli.doctor\n"
        f"def stop():\n    os.kill(os.getpid(), signal.{signal})\n    time.sleep(30)\n"
        "shardproof.agent.cli.doctor.parts = stop"
    )
    done = _main(code, "doctor", "--json", folder=tmp_path)
    assert done.returncode == 130
    last = events.parse(done.stdout.splitlines()[-1])
    assert isinstance(last, events.RunCompleted)
    assert last.exit_code == 130


def test_an_interrupt_inside_a_z3_query_exits_130(tmp_path: Path) -> None:
    code = (
        "import os, signal, threading, shardproof.agent.cli.doctor\n"
        "from shardproof.verifier.smt.solver import integers, prove\n"
        "def hard():\n"
        "    a, b, c = integers('a b c')\n"
        "    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    prove(a * a * a + b * b * b + c * c * c != 33, rlimit=2**31)\n"
        "    raise SystemError('the query ended by itself')\n"
        "shardproof.agent.cli.doctor.parts = hard"
    )
    done = _main(code, "doctor", "--json", folder=tmp_path)
    assert done.returncode == 130, done.stdout


def test_running_out_of_time_exits_4(tmp_path: Path) -> None:
    slow = (
        "import time\nfrom shardproof.agent import pipeline\n"
        "pipeline.show_program = lambda *_: time.sleep(30)"
    )
    file = tmp_path / "net.py"
    file.touch()
    done = _main(slow, "capture", f"{file}:Net", "--timeout", "0.3", "--json", folder=tmp_path)
    assert done.returncode == 4
    assert events.parse(done.stdout.splitlines()[-1]).event == "run.completed"


def test_a_reader_that_goes_away_does_not_break_the_run() -> None:
    process = subprocess.Popen(
        [*COMMAND, "ops"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    complaints = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert complaints == b""


GONE = """
import sys
from importlib.machinery import PathFinder
class Finder:
    find_distributions = PathFinder.find_distributions
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] == GONE else PathFinder.find_spec(name, path, target)
sys.meta_path[:] = [Finder if f is PathFinder else f for f in sys.meta_path]
"""


@pytest.mark.parametrize(
    ("module", "name", "code"),
    [("torch", "torch", 0), ("z3", "z3-solver", 2), ("openai", "openai", 2), ("numpy", "numpy", 2)],
)
def test_doctor_says_in_one_line_what_is_missing(
    tmp_path: Path, module: str, name: str, code: int
) -> None:
    done = _main(f"GONE = {module!r}{GONE}", "doctor", folder=tmp_path)
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.split()[0] == name]
    assert len(lines) == 1
    assert "pip install" in lines[0]
    assert "Traceback" not in done.stderr


def test_the_table_of_ops_is_an_event_too(command: Command) -> None:
    done = command("ops", "--json")
    said, last = (events.parse(line) for line in done.out.splitlines()[-2:])
    assert isinstance(said, events.Said)
    assert "all_reduce" in said.text
    assert isinstance(last, events.RunCompleted)
