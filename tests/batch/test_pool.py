"""Processes of jobs: each apart, limited, ended with all that descends from it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from shardproof.agent.batch.pool import Ended, Pool, Task
from shardproof.agent.batch.processes import Processes

SAYS = "import sys, time, os; sys.path.insert(0, %r); from shardproof.agent.run import events\n"
SAYS += "def at(p): print(events.PhaseStarted(phase=p).model_dump_json(), flush=True)\n"


def scripts(**code: str) -> Callable[[Task], Sequence[str]]:
    """How to start a task: the Python text of its name."""
    head = SAYS % str(Path(__file__).resolve().parents[2])

    def start(task: Task) -> Sequence[str]:
        return [sys.executable, "-c", head + code[task.name]]

    return start


def run(pool: Pool, *tasks: Task) -> tuple[dict[str, Ended], list[str]]:
    """What ended, and who was started, in order."""
    ended: dict[str, Ended] = {}
    started: list[str] = []
    with closing(pool.run(tasks)) as happenings:
        for happening in happenings:
            if isinstance(happening, Ended):
                ended[happening.task.name] = happening
            elif happening[0] == "started":
                started.append(happening[1].name)
    return ended, started


def test_a_crash_ends_one_job_and_no_other() -> None:
    code = "at('verify'); os.kill(os.getpid(), 11)"
    start = scripts(a="at('plan')", b=code, c="print('?'); sys.exit(3)")
    ended, _ = run(Pool(2, Processes(start)), *(Task(n, "{}") for n in "abc"))
    assert {n: e.code for n, e in ended.items()} == {"a": 0, "b": -11, "c": 3}
    assert ended["b"].phase == "verify"
    assert ended["c"].words == "?\n"


def test_a_job_that_does_not_end_in_time_is_ended_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = (
        "import signal, subprocess; signal.signal(15, signal.SIG_IGN)\n"
        "p = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        f"open({str(note)!r}, 'w').write(str(p.pid)); time.sleep(60)"
    )
    pool = Pool(1, Processes(scripts(a=child), grace_s=0.3))
    begun = time.monotonic()
    ended, _ = run(pool, Task("a", "{}", timeout=1.0))
    assert time.monotonic() - begun < 10
    assert (ended["a"].stopped, ended["a"].code) == ("timeout", -9)
    assert not alive(int(note.read_text()))


def alive(pid: int) -> bool:
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True


CAPTURE = "at('capture'); time.sleep(0.3); at('plan'); time.sleep(3)"


def test_jobs_of_one_model_wait_for_its_capture_and_others_go_first() -> None:
    start = scripts(a=CAPTURE, b="at('plan')", c="at('plan')")
    tasks = Task("a", "{}", "m"), Task("b", "{}", "m"), Task("c", "{}", "n")
    ended, started = run(Pool(2, Processes(start)), *tasks)
    assert started == ["a", "c", "b"]
    assert list(ended)[-1] == "a"  # b did not wait for all of a


@pytest.mark.parametrize(("how", "shared"), [("sys.exit(2)", True), ("os.abort()", False)])
def test_a_refused_model_is_refused_once_and_a_crash_is_tried_again(how: str, shared: bool) -> None:
    start = scripts(a=f"at('capture'); {how}", b="at('capture'); at('plan')")
    ended, started = run(Pool(2, Processes(start)), Task("a", "{}", "m"), Task("b", "{}", "m"))
    assert started == (["a"] if shared else ["a", "b"])
    assert ended["b"].as_of == ("a" if shared else "")
    assert (ended["b"].code == 0) is not shared


def test_a_mesh_that_is_refused_says_nothing_of_the_model() -> None:
    start = scripts(a="at('capture'); at('plan'); sys.exit(2)", b="at('plan')")
    ended, _ = run(Pool(1, Processes(start)), Task("a", "{}", "m"), Task("b", "{}", "m"))
    assert (ended["a"].code, ended["b"].code, ended["b"].as_of) == (2, 0, "")


def test_who_leaves_early_leaves_no_process(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"open({str(note)!r}, 'w').write(str(os.getpid())); at('plan'); time.sleep(60)"
    pool = Pool(1, Processes(scripts(a=code), grace_s=0.5))
    with closing(pool.run([Task("a", "{}")])) as happenings:
        next(h for h in happenings if not isinstance(h, Ended) and h[0] == "at")
        pid = int(note.read_text())
        assert Path(f"/proc/{pid}").exists()
    assert not alive(pid)
    assert os.getpid() != pid
