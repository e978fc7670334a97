"""One server forks the processes of all jobs, runs no user code itself, and does not outlive us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardproof.synthesis.frontends.torch import process
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.request import CaptureRequest, Limits
from tests.frontend.conftest import ROOT
from tests.frontend.test_bad_models import ended, failure

pytestmark = pytest.mark.torch


def server() -> process.Server:
    return process._servers[()]  # pyright: ignore[reportPrivateUsage]


def in_own_process(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *words], cwd=ROOT, text=True)


def read_soon(path: Path, seconds: float = 60) -> str:
    """What a file holds, once it does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError(f"{path} was not written")


def test_jobs_share_a_server_and_nothing_that_they_did(user_model, tmp_path):
    mark = tmp_path / "parent"
    top = (
        f"import os, sys, random\nopen({str(mark)!r}, 'a').write(f'{{os.getppid()}}\\n')\n"
        "assert not hasattr(torch, 'left_behind')\nassert 'LEFT_BEHIND' not in os.environ\n"
        "assert torch.get_default_dtype() is torch.float32\n"
        "torch.left_behind = os.environ['LEFT_BEHIND'] = '1'\n"
        "torch.set_default_dtype(torch.float64)\nrandom.seed(0)"
    )
    target = user_model("return self.w(x.double()).sum()", top)
    first = capture(CaptureRequest(target))
    second = capture(CaptureRequest(target))
    assert first.program == second.program
    parents = mark.read_text().split()
    assert parents == [str(server().process.pid)] * 2


def test_the_server_has_one_thread_and_no_process_left(user_model):
    capture(CaptureRequest(user_model("return self.w(x).sum()")))
    pid = server().process.pid
    tasks = Path(f"/proc/{pid}/task")
    assert [t.name for t in tasks.iterdir()] == [str(pid)]
    assert not (tasks / str(pid) / "children").read_text().split()


def test_a_job_holds_no_socket_of_the_server(user_model):
    top = (
        "import os\n"
        "held = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')\n"
        "        if os.path.islink(f'/proc/self/fd/{n}')]\n"
        "pipes = {h for h in held if h.startswith('pipe:')}\n"
        "assert len(pipes) == 1, held\n"
        "assert not [h for h in held if h.startswith('socket:')], held"
    )
    capture(CaptureRequest(user_model("return self.w(x).sum()", top)))


def test_processes_draw_different_numbers_as_fresh_ones_do(user_model, tmp_path):
    mark = tmp_path / "drawn"
    top = (
        "import random, numpy\n"
        f"open({str(mark)!r}, 'a').write(f'{{random.random()}} {{numpy.random.rand()}}\\n')"
    )
    target = user_model("return self.w(x).sum()", top)
    for _ in range(2):
        capture(CaptureRequest(target))
    (a, b), (c, d) = (line.split() for line in mark.read_text().splitlines())
    assert a != c
    assert b != d


def test_files_beside_the_model_do_not_shadow_libraries(user_model, tmp_path, monkeypatch):
    for name in ("glob", "inspect", "networkx", "numpy", "socket", "sympy"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process._close()  # pyright: ignore[reportPrivateUsage]  (a server begun in that folder)
    found = capture(CaptureRequest(user_model("return self.w(x).sum()", "import glob, inspect")))
    assert [o.role for o in found.program.outputs] == ["loss", "grad", "grad"]


def test_a_file_beside_the_model_is_imported(user_model, tmp_path):
    (tmp_path / "layers.py").write_text("def twice(x): return 2 * x\n")
    top = "from layers import twice"
    found = capture(CaptureRequest(user_model("return twice(self.w(x)).sum()", top)))
    assert found.facts.class_name == "M"


def test_a_relative_target_is_that_of_the_folder_we_are_in_now(user_model, tmp_path, monkeypatch):
    user_model("return self.w(x).sum()")
    capture(CaptureRequest(f"{tmp_path}/model.py:M"))
    monkeypatch.chdir(tmp_path)
    assert capture(CaptureRequest("model.py:M")).facts.class_name == "M"


def test_variables_that_changed_reach_the_next_job(user_model, monkeypatch):
    target = user_model("return self.w(x).sum()", "import os\nassert os.environ['TZ'] == 'UTC'")
    monkeypatch.delenv("TZ", raising=False)
    assert "KeyError: 'TZ'" in failure(target).message
    monkeypatch.setenv("TZ", "UTC")
    capture(CaptureRequest(target))


def test_processor_time_is_that_of_the_job(user_model):
    target = user_model("while True: pass")
    error = failure(target, limits=Limits(cpu_s=3))
    assert "more than 3 s of processor time" in error.message
    capture(
        CaptureRequest(user_model("return self.w(x).sum()", name="n.py"), limits=Limits(cpu_s=60))
    )


def test_a_job_that_kills_itself_is_told(user_model):
    error = failure(user_model("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"))
    assert "ended by SIGKILL before it had a result" in error.message


def test_a_job_that_kills_the_server_harms_nobody_else(user_model, tmp_path):
    mark = tmp_path / "pid"
    top = (
        f"import os, signal, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\n"
        "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)"
    )
    error = failure(user_model("return x", top))
    assert "the process that started it was ended (exit code -9)" in error.message
    assert ended(int(mark.read_text()))
    capture(CaptureRequest(user_model("return self.w(x).sum()", name="other.py")))


def test_a_server_that_died_is_replaced(user_model):
    target = user_model("return self.w(x).sum()")
    capture(CaptureRequest(target))
    before = server()
    before.process.kill()
    capture(CaptureRequest(target))
    assert server() is not before
    assert not Path(before.home).exists()


def test_a_forked_process_has_a_server_of_its_own(user_model, tmp_path):
    target = user_model("return self.w(x).sum()")
    capture(CaptureRequest(target))
    before = server().process.pid
    mark = tmp_path / "forked"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            capture(CaptureRequest(target))
            mark.write_text(str(server().process.pid))
            process._close()  # pyright: ignore[reportPrivateUsage]
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert int(mark.read_text()) != before
    assert ended(int(mark.read_text()))
    capture(CaptureRequest(target))
    assert server().process.pid == before


ONE_JOB = """
import sys
from shardproof.synthesis.frontends.torch import process
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.request import CaptureRequest
process.warm_up(sys.argv[1])
open(sys.argv[2], "w").write(f"{process._servers[()].process.pid} {process._servers[()].home}")
if sys.argv[3:]:
    capture(CaptureRequest(sys.argv[1]))
"""


@pytest.mark.parametrize("jobs", [(), ("one",)])
def test_no_server_is_left_at_exit(user_model, tmp_path, jobs):
    target = user_model("return self.w(x).sum()")
    mark = tmp_path / "server"
    began = time.monotonic()
    assert in_own_process(ONE_JOB, target, str(mark), *jobs).wait(60) == 0
    assert jobs or time.monotonic() - began < 3, "it waited for imports that nobody needs"
    pid, home = mark.read_text().split()
    assert ended(int(pid))
    assert not Path(home).exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_is_left_when_we_are_ended(user_model, tmp_path, how):
    mark, job, below = (tmp_path / name for name in ("server", "job", "below"))
    top = (
        f"import os, time\nopen({str(job)!r}, 'w').write(str(os.getpid()))\n"
        f"if os.fork() == 0:\n    open({str(below)!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(600)"
    )
    target = user_model("while True: time.sleep(1)", top)
    parent = in_own_process(ONE_JOB, target, str(mark), "one")
    pids = [int(read_soon(path).split()[0]) for path in (mark, job, below)]
    parent.send_signal(how)
    assert parent.wait(30) != 0
    assert all(ended(pid) for pid in pids)
    assert not Path(mark.read_text().split()[1]).exists()
