"""What a person sees while a phase runs: its seconds, and how many it took the last time."""

import contextlib
import json
import sys
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from shardproof.agent.run.files import user_folder, write_whole

if TYPE_CHECKING:
    from rich.progress import Progress

KEPT = 200
"""Command lines that are remembered."""
LEAST_S = 2.0
"""Phases below are not worth an estimate."""


class LastTime:
    """Seconds by phase of the last run of the same command line. A file that cannot be read or
    written is as none: this is a service, not a result."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.path = user_folder("CACHE") / "phases.json"
        self.lines: dict[str, dict[str, float]] = {}
        with contextlib.suppress(OSError, ValueError):
            self.lines = TypeAdapter(dict[str, dict[str, float]]).validate_json(
                self.path.read_bytes()
            )
        self.taken: dict[str, float] = {}

    def estimate(self, phase: str) -> str:
        """Of a phase that took long; "" where nothing is known."""
        seconds = self.lines.get(self.line, {}).get(phase, 0.0)
        return f"of about {seconds:.0f} s" if seconds >= LEAST_S else ""

    def keep(self) -> None:
        """Write down what this run took."""
        self.lines.pop(self.line, None)
        kept = list(self.lines.items())[1 - KEPT :]
        text = json.dumps(dict([*kept, (self.line, self.taken)]))
        with contextlib.suppress(OSError):
            write_whole(self.path, text.encode())


def bar(phase: str, estimate: str) -> "Progress":
    """A line on the terminal that counts the seconds of a phase, started."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    terminal = Console(file=sys.stderr)
    shown = Progress(*columns, TextColumn(estimate), console=terminal, transient=True)
    shown.add_task(phase)
    shown.start()
    return shown
