"""How far a batch is: rows as jobs end, on the screen and in the summary on the disk."""

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardproof.agent import __version__
from shardproof.agent.actions.batches import Batch
from shardproof.agent.batch import summary
from shardproof.agent.batch.folder import Folder
from shardproof.agent.batch.jobs import Job
from shardproof.agent.batch.rows import Row
from shardproof.agent.run import events
from shardproof.agent.run.files import write_whole
from shardproof.agent.run.machine import versions
from shardproof.agent.run.run import Run

SHOWN = 4
"""Running jobs that are named on the screen."""
REWRITE_S = 2.0
"""Seconds between summaries while jobs run."""


@dataclass(frozen=True)
class Planned:
    """A job, and what its result depends on."""

    job: Job
    inputs: str
    model: str
    chosen: bool


@dataclass
class Progress:
    """How far a batch is, and its summary on the disk."""

    run: Run
    asked: Batch
    folder: Folder
    planned: Sequence[Planned]
    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    done: int = 0
    running: dict[str, str] = field(default_factory=dict[str, str])
    """Job to phase."""
    written: float = 0.0
    cost: float = 0.0
    """Seconds that the last summary took."""

    def ended(self, row: Row) -> None:
        """A job came to its end."""
        self.rows[row.name] = row
        self.running.pop(row.name, None)
        self.done += 1
        verdict = row.status if row.status in ("proved", "refuted") else "unknown"
        self.run.emit(
            events.JobCompleted(
                job=row.name,
                status=row.status,
                verdict=verdict,
                done=self.done,
                of=sum(p.chosen for p in self.planned),
                seconds=row.seconds,
                message=("done before; " if row.kept else "") + summary.detail(row),
                row=row.model_dump(mode="json"),
            )
        )
        if time.monotonic() - self.written > max(REWRITE_S, 20 * self.cost):
            self.write(complete=False)

    def note(self) -> None:
        """Say what is under way."""
        doing = [f"{name} ({at})" if at else name for name, at in self.running.items()]
        more = f" and {len(doing) - SHOWN} more" if len(doing) > SHOWN else ""
        said = f"{self.done} of {sum(p.chosen for p in self.planned)} done"
        self.run.note("; ".join(filter(None, [said, ", ".join(doing[:SHOWN]) + more])))

    def write(self, *, complete: bool) -> summary.Summary:
        """The summary so far: each file in one step, their hashes last."""
        begun = time.monotonic()
        found = summary.summarised(
            self.rows.values(),
            models=len({p.model for p in self.planned}),
            shardproof=__version__,
            command=shlex.join(("shardproof", *sys.argv[1:])),
            complete=complete,
            seconds=round(self.run.elapsed(), 3),
            versions=versions(),
        )
        texts = summary.texts(found)
        for name, text in texts.items():
            write_whole(self.folder.root / name, text.encode())
        done = [row.name for row in self.rows.values() if row.directory]
        self.folder.seal({"command": found.command, "complete": complete}, texts, sorted(done))
        self.written = time.monotonic()
        self.cost = self.written - begun
        return found
