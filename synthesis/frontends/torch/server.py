"""The fork server: imports modules once, and forks a process for each job. It runs no user code.

`python -P -m shardproof.synthesis.frontends.torch.server FD HOME NAME...`: each name is a module,
or with `:FUNCTION` what is called once. FD is a socket on which each job comes as one byte with
descriptors: the job's own socket, its stdout and stderr, and if it has them its stdin and a server
for it. On its own socket a job is described by one line of JSON; the server answers with the
process, and when that has ended with its wait status, each as `NUMBER`. Where the far end closes,
the job's session is ended; where FD closes, all are, and the server goes.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import resource
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from shardproof.synthesis.frontends.torch.process import NUMBER, SHARED, end_session

COLLECTED = (200_000, 20, 20)
"""When jobs collect garbage: tracing makes many objects, nearly all of which stay."""
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG."""


@dataclass
class _Server:
    control: socket.socket
    woken: int
    """Readable after a process has ended."""
    wake: int
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    jobs: dict[int, socket.socket] = field(default_factory=dict[int, socket.socket])
    """By process."""

    def serve(self) -> None:
        """Until nobody is there to give jobs."""
        self.selector.register(self.control, selectors.EVENT_READ)
        self.selector.register(self.woken, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in self.selector.select()}
            if self.woken in ready:
                os.read(self.woken, 1 << 12)
            for pid, job in list(self.jobs.items()):
                if job.fileno() in ready or _has_ended(pid):
                    self.end(pid)
            if self.control.fileno() in ready and not self.begin():
                break
        for pid in list(self.jobs):
            self.end(pid)

    def begin(self) -> bool:
        """Fork the process of the job that comes next; False where there is none."""
        try:
            data, received, _, _ = socket.recv_fds(self.control, 1, 5)
        except ConnectionError:
            return False
        if not data:
            return False
        job, streams = socket.socket(fileno=received[0]), received[1:]
        with job.makefile("rb") as lines:
            order = json.loads(lines.readline())
        sys.stdout.flush()
        sys.stderr.flush()
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            job.close()
            self.become(order, streams, me)
        for fd in streams:
            os.close(fd)
        self.jobs[pid] = job
        self.selector.register(job, selectors.EVENT_READ)
        with contextlib.suppress(OSError):
            job.sendall(NUMBER.pack(pid))
        return True

    def end(self, pid: int) -> None:
        """End all of a job's session, and tell how its process ended."""
        job = self.jobs.pop(pid)
        self.selector.unregister(job)
        end_session(pid)
        _, status = os.waitpid(pid, 0)
        with job, contextlib.suppress(OSError):
            job.sendall(NUMBER.pack(status))

    def become(self, order: dict[str, Any], streams: list[int], server: int) -> NoReturn:
        """In the forked process: leave the server behind, and do the job."""
        code = 1
        try:
            os.setsid()
            _die_with(server)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd, number in zip(streams, (1, 2, 0), strict=False):
                os.dup2(fd, number)
            if len(streams) > 3:
                os.environ[SHARED] = str(os.dup(streams[3]))
            self.selector.close()
            for other in (self.control, *self.jobs.values()):
                other.close()
            for fd in (*streams, self.woken, self.wake):
                os.close(fd)
            _do(order)
            code = 0
        except SystemExit as problem:
            code = problem.code if isinstance(problem.code, int) else 0 if not problem.code else 1
            if isinstance(problem.code, str):
                sys.stderr.write(f"{problem.code}\n")
        except BaseException:  # noqa: BLE001  (the process ends here in any case)
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _has_ended(pid: int) -> bool:
    """Whether it has; it is not collected yet, so that its number means no other process."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, flags) is not None


def _die_with(server: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)


def _do(order: dict[str, Any]) -> None:
    """Do a job as a process that was just started would, but for what is imported already."""
    os.chdir(order["cwd"])
    os.environ.update(order["variables"])
    tempfile.tempdir = None
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if order["limits"] is not None:
        set_limits(order["limits"])
    _named(order["entry"])(Path(order["folder"]))


def _named(entry: str) -> Any:
    """A function, or a module alone."""
    module, _, function = entry.partition(":")
    found = importlib.import_module(module)
    return getattr(found, function) if function else found


def set_limits(limits: dict[str, int]) -> None:
    """Lower the limits of this process; one that is lower already stays."""
    wanted = {
        resource.RLIMIT_CPU: limits["cpu"],
        resource.RLIMIT_AS: limits["address_space"],
        resource.RLIMIT_FSIZE: limits["file"],
        resource.RLIMIT_NOFILE: limits["files"],
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (limit, hard))


def _ignored(*_: object) -> None:
    """A handler, so that a process that ends wakes the server."""


def main() -> None:
    control, home, modules = socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3:]
    try:
        gc.disable()  # what is imported stays
        for name in modules:
            with contextlib.suppress(Exception):  # the job's process meets the error, and tells it
                found = _named(name)
                if ":" in name:
                    found()
        gc.freeze()  # no collection before: it would look through all that was imported
        gc.set_threshold(*COLLECTED)
        gc.enable()
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignored)
        _Server(control, woken, wake).serve()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
