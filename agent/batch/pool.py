"""Processes of jobs: so many at once, each in a session of its own, none of which can end the rest.

Jobs of one model wait for the first of them to have captured it; where that one ends without, the
next tries, except where the model itself was refused: that holds for all of them.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from pydantic import ValidationError

from agent import events
from agent.errors import Exit

GRACE_S = 5.0
"""Seconds beyond its limit until a job is told to end, and then until it is ended."""
WORDS = 64 * 1024
"""Bytes of what a process says besides events that are kept, from their end."""
TICK_S = 0.2


@dataclass(frozen=True)
class Task:
    """A process to run."""

    name: str
    order: str
    """One line for its stdin."""
    model: str = ""
    """Tasks with the same word share a captured model; '': nothing is shared."""
    timeout: float | None = None


@dataclass(frozen=True)
class Ended:
    """What a process left behind."""

    task: Task
    code: int
    """Exit code, negative for a signal."""
    seconds: float
    events: Sequence[events.Event] = ()
    words: str = ""
    """The end of what it said besides events."""
    stopped: str = ""
    """`timeout`, or why we ended it."""
    as_of: str = ""
    """The task that was refused before for the same model, so that this one was not run."""

    @property
    def phase(self) -> str:
        """The phase in which it ended."""
        return _phase(self.events)


@dataclass
class _Worker:
    task: Task
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    started: float
    buffer: bytes = b""
    seen: list[events.Event] = field(default_factory=list[events.Event])
    stray: list[str] = field(default_factory=list[str])
    told: float | None = None
    """When it was told to end."""
    stopped: str = ""


Happening = tuple[Literal["started", "at"], Task, str] | Ended
"""A process started, is at another phase, or ended."""


def command(task: Task) -> list[str]:
    """How the process of a task is started."""
    return [sys.executable, "-P", "-m", "agent.batch.worker", task.name]


@dataclass
class Pool:
    """Runs tasks; `run` yields what happens. Whoever leaves it early ends every process."""

    workers: int
    start: Callable[[Task], Sequence[str]] = command
    held: Sequence[int] = ()
    """Descriptors that processes inherit."""
    grace_s: float = GRACE_S
    _running: dict[str, _Worker] = field(default_factory=dict[str, _Worker])

    def run(self, tasks: Sequence[Task]) -> Generator[Happening]:
        """Run them all, in order as far as models are not waited for."""
        waiting = list(tasks)
        ready: set[str] = set()
        refused: dict[str, Ended] = {}
        try:
            while waiting or self._running:
                while len(self._running) < self.workers:
                    task = self._next(waiting, ready, refused)
                    if task is None:
                        break
                    waiting.remove(task)
                    first = refused.get(task.model)
                    if first is not None:
                        yield Ended(task, first.code, 0.0, first.events, as_of=first.task.name)
                        continue
                    self._running[task.name] = self._begin(task)
                    yield "started", task, ""
                for happening in self._watch():
                    if isinstance(happening, Ended) and happening.task.model:
                        if _model_refused(happening):
                            refused[happening.task.model] = happening
                    elif not isinstance(happening, Ended) and _captured(happening[2]):
                        ready.add(happening[1].model)
                    yield happening
        finally:
            self._end_all()

    def _next(
        self, waiting: Sequence[Task], ready: set[str], refused: Mapping[str, Ended]
    ) -> Task | None:
        """The first task that need not wait for another one's model."""
        busy = {w.task.model for w in self._running.values()} - ready - {""}
        return next((t for t in waiting if t.model in refused or t.model not in busy), None)

    def _begin(self, task: Task) -> _Worker:
        log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the worker)
        process = subprocess.Popen(
            list(self.start(task)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(),
            start_new_session=True,
            pass_fds=tuple(self.held),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(task.order.encode() + b"\n")
            process.stdin.flush()
        os.set_blocking(process.stdout.fileno(), False)
        return _Worker(task, process, log, time.monotonic())

    def _watch(self) -> Iterator[Happening]:
        """Wait a moment; what was said and who ended meanwhile."""
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
                before = _phase(worker.seen)
                closed = self._read(worker)
                now = _phase(worker.seen)
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
        code = process.returncode
        return Ended(worker.task, code, seconds, worker.seen, stray + words, worker.stopped)

    def _end_all(self) -> None:
        """End what still runs: first told, so that it can clean up, then for certain."""
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


def end(process: subprocess.Popen[bytes]) -> None:
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


def _environment() -> dict[str, str]:
    """As ours, with one thread a process and this program importable."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": threads}


def _phase(seen: Sequence[events.Event]) -> str:
    for event in reversed(seen):
        if isinstance(event, events.PhaseStarted):
            return event.phase
    return ""


_BEFORE = ("", "capture", "inspect")
"""Phases in which a job has no model yet."""


def _captured(phase: str) -> bool:
    """Whether the model is there for others, when a job is at this phase."""
    return phase not in _BEFORE


def _model_refused(ended: Ended) -> bool:
    """Whether the code or the config was refused, whatever the mesh: not a crash, not a limit."""
    begun = any(isinstance(e, events.PhaseStarted) for e in ended.events)
    return ended.code == Exit.INPUT and begun and not _captured(ended.phase)
