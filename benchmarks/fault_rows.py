"""The rows of the table of faults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Row:
    """What came of one class of faults under one check."""

    what: str
    injected: int = 0
    unchanged: int = 0
    found: int = 0
    located: int = -1
    required: bool = True

    def add(self, changed: bool, alarm: bool, located: bool | None = None) -> None:
        if not changed:
            self.unchanged += 1
            return
        self.injected += 1
        self.found += alarm
        if located is not None:
            self.located = max(self.located, 0) + located

    @property
    def bad(self) -> bool:
        missed = self.found < self.injected or (0 <= self.located < self.injected)
        return self.required and (missed or not self.injected)

    def __str__(self) -> str:
        rate = self.found / self.injected if self.injected else 0.0
        where = f"{self.located:7}" if self.located >= 0 else "      -"
        note = "  MISSED" if self.bad else "" if self.required else "  recorded"
        return (
            f"  {self.what:58} {self.injected:8} {self.unchanged:6} {self.found:8} "
            f"{rate:7.1%} {where}{note}"
        )


@dataclass
class Clean:
    """Runs without a fault."""

    what: str
    runs: int = 0
    alarms: int = 0
    skipped: int = 0

    @property
    def bad(self) -> bool:
        return self.alarms > 0 or self.runs == 0

    def __str__(self) -> str:
        return f"  {self.what:58} {self.runs:8} {self.skipped:6} {self.alarms:8} alarms"
