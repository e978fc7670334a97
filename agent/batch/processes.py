"""Jobs as processes of this machine, each in a session of its own; none can end the rest."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from shardproof.agent.batch.forked import Forked, Warm
from shardproof.agent.batch.pool import Ended, Happening, Task, phase_of
from shardproof.agent.run import events
from shardproof.installed import IMPORTED_FROM

GRACE_S = 5.0
"""Seconds beyond its limit until a job is told to end, and then until it is ended."""
WORDS = 64 * 1024
"""Bytes of what a process says besides events that are kept, from their end."""
TICK_S = 0.2


@dataclass
class _Worker:
    task: Task
    process: subprocess.Popen[bytes] | Forked
    log: IO[bytes]
    started: float
    buffer: bytes = b""
    seen: list[events.Event] = field(default_factory=list[events.Event])
    stray: list[str] = field(default_factory=list[str])
    told: float | None = None
    """When it was told to end."""
    stopped: str = ""


def command(task: Task) -> list[str]:
    """How the process of a task is started."""
    return [sys.executable, "-P", "-m", "shardproof.agent.batch.worker", task.name]


@dataclass
class Processes:
    """Runs tasks as processes. `start` gives the command line of one."""

    start: Callable[[Task], Sequence[str]] = command
    held: Sequence[int] = ()
    """Descriptors that processes inherit."""
    grace_s: float = GRACE_S
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Beside ours."""
    lost: str = ""
    warm: Warm | None = None
    """Forks the processes, where that can be; they are what `start` says otherwise."""
    _running: dict[str, _Worker] = field(default_factory=dict[str, _Worker])

    @property
    def running(self) -> Mapping[str, Task]:
        return {name: worker.task for name, worker in self._running.items()}

    def begin(self, task: Task) -> None:
        log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the worker)
        command = list(self.start(task))
        process = self.warm.fork(task.target, log) if self.warm is not None else None
        if process is None:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**environment(), **self.environment},
                start_new_session=True,
                pass_fds=tuple(self.held),
            )
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(task.order.encode() + b"\n")
            process.stdin.flush()
        os.set_blocking(process.stdout.fileno(), False)
        self._running[task.name] = _Worker(task, process, log, time.monotonic())

    def watch(self) -> Iterator[Happening]:
        with selectors.DefaultSelector() as selector:
            for worker in self._running.values():
                assert worker.process.stdout is not None
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            if not selector.get_map():
                return
            said = [key.data for key, _ in selector.select(TICK_S)]
        for worker in list(self._running.values()):
            closed = False
            if worker in said:
                before = phase_of(worker.seen)
                closed = self._read(worker)
                now = phase_of(worker.seen)
                if now != before:
                    yield "at", worker.task, now
            if closed:
                self._wait(worker)
            if worker.process.poll() is not None:
                self._read(worker)
                del self._running[worker.task.name]
                yield self._over(worker)
            else:
                self._limit(worker)

    def _wait(self, worker: _Worker) -> None:
        """It closed its stdout: it ends now, or is ended."""
        try:
            worker.process.wait(self.grace_s)
        except subprocess.TimeoutExpired:
            worker.stopped = worker.stopped or "it closed its stream of events and went on"
            end(worker.process)

    def _read(self, worker: _Worker) -> bool:
        """Take what the process wrote; whether it closed the pipe."""
        assert worker.process.stdout is not None
        while True:
            try:
                data = os.read(worker.process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                return False
            if not data:
                return True
            *lines, worker.buffer = (worker.buffer + data).split(b"\n")
            for line in lines:
                try:
                    worker.seen.append(events.parse(line.decode("utf-8", "replace")))
                except ValidationError:
                    worker.stray.append(line.decode("utf-8", "replace"))
                    del worker.stray[:-200]

    def _limit(self, worker: _Worker) -> None:
        """A job ends itself when its time is over; where it does not, it is ended."""
        now, limit = time.monotonic(), worker.task.timeout
        if worker.told is not None:
            if now - worker.told > self.grace_s:
                end(worker.process)
        elif limit is not None and now - worker.started > limit + self.grace_s:
            worker.stopped, worker.told = "timeout", now
            with contextlib.suppress(ProcessLookupError):
                worker.process.terminate()

    def _over(self, worker: _Worker) -> Ended:
        process = worker.process
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        worker.log.seek(max(0, worker.log.seek(0, os.SEEK_END) - WORDS))
        words = worker.log.read().decode("utf-8", "replace")
        worker.log.close()
        stray = "".join(f"{line}\n" for line in worker.stray)
        seconds = time.monotonic() - worker.started
        assert process.returncode is not None
        return Ended(
            worker.task, process.returncode, seconds, worker.seen, stray + words, worker.stopped
        )

    def end_all(self) -> None:
        left = [w.process for w in self._running.values()]
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        patience = time.monotonic() + self.grace_s
        for process in left:
            try:
                process.wait(max(0.0, patience - time.monotonic()))
            except subprocess.TimeoutExpired:
                end(process)
        for worker in self._running.values():
            self._over(worker)
        self._running.clear()
        if self.warm is not None:
            self.warm.close()


def end(process: subprocess.Popen[bytes] | Forked) -> None:
    """End a process with everything that descends from it, in whatever session."""
    below = _descendants(process.pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in below:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    """Processes below one, where the system tells."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = list[int](), [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def environment() -> dict[str, str]:
    """As ours, with one thread a process and this program importable."""
    paths = [IMPORTED_FROM, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": threads}
