"""The log of a run, and what each rank leaves behind of it."""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardproof.synthesis.guard.alarm import Alarm


@dataclass
class Journal:
    """Where a rank writes: rank 0 a log of JSON lines, every rank a report of its own."""

    log: Path | None
    folder: Path | None
    rank: int = -1

    def write(self, event: dict[str, Any]) -> None:
        """A line of the log."""
        if self.log is not None and self.rank == 0:
            with contextlib.suppress(OSError), self.log.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"time": round(time.time(), 3), **event}) + "\n")

    def report(self, summary: dict[str, Any], alarms: Sequence[Alarm]) -> None:
        """`rank<n>.json`, as it stands now."""
        if self.folder is not None and self.rank >= 0:
            data = {"rank": self.rank, **summary, "found": [a.to_json() for a in alarms]}
            with contextlib.suppress(OSError):
                place = self.folder / f"rank{self.rank}.json"
                place.write_text(json.dumps(data), encoding="utf-8")
