"""Which job runs next: so many at once, and jobs of one model wait until one has captured it.

Where that one ends without, the next tries, except where the model itself was refused: that holds
for all of them. Where jobs run, an executor knows: processes here, or tasks of a Ray cluster.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit


@dataclass(frozen=True)
class Task:
    """A process to run."""

    name: str
    order: str
    """One line for its stdin."""
    model: str = ""
    """Tasks with the same word share a captured model; '': nothing is shared."""
    timeout: float | None = None
    target: str = ""
    """What it is about."""


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
        return phase_of(self.events)


Happening = tuple[Literal["started", "at"], Task, str] | Ended
"""A process started, is at another phase, or ended."""


class Executor(Protocol):
    """Where jobs run."""

    lost: str
    """Why no job can run any more, or nothing."""

    @property
    def running(self) -> Mapping[str, Task]:
        """Tasks that were begun and have not ended, by name."""
        ...

    def begin(self, task: Task) -> None:
        """Start a task."""
        ...

    def watch(self) -> Iterator[Happening]:
        """Wait a moment; what happened meanwhile."""
        ...

    def end_all(self) -> None:
        """End what still runs: first told, so that it can clean up, then for certain."""
        ...


@dataclass
class Pool:
    """Runs tasks; `run` yields what happens. Whoever leaves it early ends every process."""

    workers: int
    executor: Executor

    def run(self, tasks: Sequence[Task]) -> Generator[Happening]:
        """Run them all, in order as far as models are not waited for."""
        waiting = list(tasks)
        ready: set[str] = set()
        refused: dict[str, Ended] = {}
        try:
            while (waiting or self.executor.running) and not self.executor.lost:
                while len(self.executor.running) < self.workers:
                    task = self._next(waiting, ready, refused)
                    if task is None:
                        break
                    waiting.remove(task)
                    first = refused.get(task.model)
                    if first is not None:
                        yield Ended(task, first.code, 0.0, first.events, as_of=first.task.name)
                        continue
                    self.executor.begin(task)
                    yield "started", task, ""
                for happening in self.executor.watch():
                    if isinstance(happening, Ended) and happening.task.model:
                        if _model_refused(happening):
                            refused[happening.task.model] = happening
                    elif not isinstance(happening, Ended) and captured(happening[2]):
                        ready.add(happening[1].model)
                    yield happening
        finally:
            self.executor.end_all()

    def _next(
        self, waiting: Sequence[Task], ready: set[str], refused: Mapping[str, Ended]
    ) -> Task | None:
        """The first task that need not wait for another one's model."""
        busy = {t.model for t in self.executor.running.values()} - ready - {""}
        return next((t for t in waiting if t.model in refused or t.model not in busy), None)


def phase_of(seen: Sequence[events.Event]) -> str:
    for event in reversed(seen):
        if isinstance(event, events.PhaseStarted):
            return event.phase
    return ""


_BEFORE = ("", "capture", "inspect")
"""Phases in which a job has no model yet."""


def captured(phase: str) -> bool:
    """Whether the model is there for others, when a job is at this phase."""
    return phase not in _BEFORE


def _model_refused(ended: Ended) -> bool:
    """Whether the code or the config was refused, whatever the mesh: not a crash, not a limit."""
    begun = any(isinstance(e, events.PhaseStarted) for e in ended.events)
    return ended.code == Exit.INPUT and begun and not captured(ended.phase)
