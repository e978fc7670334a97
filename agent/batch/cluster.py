"""Jobs as tasks of a Ray cluster, as a batch sees them: through the process that speaks to Ray."""

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import IO

from pydantic import ValidationError

from shardproof.agent.batch.pool import Ended, Happening, Task
from shardproof.agent.batch.processes import environment
from shardproof.agent.batch.wire import WORD, At, Commission, Hello, Lost, Over, Word
from shardproof.agent.run import events
from shardproof.agent.run.errors import InputError

PATIENCE_S = 90.0
"""Seconds until a cluster must have answered."""
TICK_S = 0.2


@dataclass
class RayTasks:
    """Runs tasks on a Ray cluster. Made by `joined`."""

    process: subprocess.Popen[bytes]
    start: Callable[[Task], Sequence[str]]
    """The command line of a task's process; its first word, the interpreter, is the node's."""
    place: Callable[[str], str]
    """Where the out-directory of a job belongs."""
    log: IO[bytes]
    size: Hello = field(default_factory=lambda: Hello(cpus=0, nodes=0))
    lost: str = ""
    running: dict[str, Task] = field(default_factory=dict[str, Task])
    _buffer: bytes = b""

    def begin(self, task: Task) -> None:
        words = tuple(self.start(task))[1:]
        asked = Commission(
            name=task.name,
            words=words,
            order=task.order,
            out=self.place(task.name),
            model=task.model,
            timeout=task.timeout,
        )
        self.running[task.name] = task
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(asked.model_dump_json().encode() + b"\n")
            self.process.stdin.flush()

    def watch(self) -> Iterator[Happening]:
        """Wait a moment. Where the cluster is gone, every job that ran has ended."""
        for word in self.words():
            match word:
                case At(name=name, phase=phase) if phase and name in self.running:
                    yield "at", self.running[name], phase
                case Over():
                    yield _ended(self.running.pop(word.name), word)
                case Lost(why=why):
                    self.lost = f"the Ray cluster was lost: {why}"
                case _:
                    pass
        if self.lost:
            for task in list(self.running.values()):
                del self.running[task.name]
                yield Ended(task, -9, 0.0, stopped=self.lost)

    def words(self) -> Iterator[Word]:
        """What the process said since, waiting a moment for it."""
        assert self.process.stdout is not None
        there, _, _ = select.select([self.process.stdout], [], [], TICK_S)
        if not there:
            return
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        if not data:
            yield Lost(why=f"its driver ended with code {self.process.wait()}")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            yield WORD.validate_json(line)

    def end_all(self) -> None:
        """Close its stdin: it ends, and Ray ends what it had begun."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()
        self.running.clear()


def joined(
    address: str | None,
    needs: tuple[float, int],
    start: Callable[[Task], Sequence[str]],
    place: Callable[[str], str],
    held: Sequence[int],
) -> RayTasks:
    """A cluster at an address (`auto`: the one of this machine), or a new one here.

    `needs` are CPUs and bytes of memory of a job.

    Raises:
        InputError: Ray is not installed, or the cluster cannot be used.
    """
    if find_spec("ray") is None:
        raise InputError(
            "Ray is not installed", where="--executor ray", hint="pip install 'shardproof[ray]'"
        )
    if address not in (None, "auto"):
        _reachable(address)
    words = ["--cpus", str(needs[0]), "--memory", str(needs[1])]
    words += ["--address", address] if address else []
    log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "shardproof.agent.batch.relay", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment(),
        start_new_session=True,
        pass_fds=tuple(held),
    )
    tasks = RayTasks(process, start, place, log)
    until = time.monotonic() + PATIENCE_S
    try:
        tasks.size = _answer(tasks, until)
    except InputError:
        tasks.process.kill()
        tasks.end_all()
        raise
    return tasks


def _reachable(address: str) -> None:
    """Ray itself asks for a minute and a half whether somebody listens."""
    host, _, port = address.rpartition(":")
    form = "host:port of the head, as `ray start` prints it, or auto"
    if "//" in address or not port.isdecimal():
        raise InputError("not an address", where="--address", expected=form, got=address)
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            "nothing listens there", where=f"--address {address}", expected=form, got=str(error)
        ) from None


def _answer(tasks: RayTasks, until: float) -> Hello:
    why = f"no answer within {PATIENCE_S:g} s"
    while time.monotonic() < until:
        for word in tasks.words():
            if isinstance(word, Hello):
                return word
            if isinstance(word, Lost):
                why, until = word.why, 0.0
                break
    raise InputError(
        "the Ray cluster cannot be used",
        where="--executor ray",
        got=why,
        hint="`ray status` shows a cluster; without --address one is started on this machine",
    )


def _ended(task: Task, over: Over) -> Ended:
    seen: list[events.Event] = []
    for text in over.events:
        with contextlib.suppress(ValidationError):
            seen.append(events.parse(text))
    return Ended(task, over.code, over.seconds, seen, over.words, over.stopped)
