"""What a guard is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from synthesis.guard.errors import GuardError

Level = Literal["R", "T3"]
SHARED = (
    "every", "level", "on_fault", "canary", "agree", "between", "calls", "samples", "seed",
)  # fmt: skip
"""What all ranks have to be told alike."""


@dataclass(kw_only=True, eq=False)
class Settings:
    """The settings of a `Guard`.

    Raises:
        GuardError: a value that there is not.
    """

    every: int = 1
    """Look at one call of so many in each group, drawn anew each time."""
    level: Level = "R"
    """How sums are checked: `R` (with T2), or `T3`."""
    on_fault: Literal["raise", "log"] = "raise"
    """`raise` FaultError on every rank at the end of the step, or only `log`."""
    log: str | Path | None = None
    """A file of JSON lines, written by rank 0."""
    report: str | Path | None = None
    """A folder in which every rank leaves `rank<n>.json`."""
    timeout: float = 60.0
    """Seconds that a rank waits for the others in the guard's own exchange."""
    canary: bool = True
    """Run the collectives of each group on known payloads before its first call."""
    agree: int = 16
    """Compare descriptors before each of the first so many calls of a group."""
    between: int = 0
    """Compare before every so many optimizer steps. By default (0) every step for `every=1`, else
    every 8th: an alarm names the step that the call was in."""
    calls: int = 500
    """Compare at least after so many calls of a group of all ranks."""
    keep: int = 64 << 20
    """Bytes of sampled calls that are kept for a diagnosis."""
    samples: int = 64
    """Places at which sums are checked (T2)."""
    seed: int | None = None
    """What keys and samples are drawn from; by default rank 0 draws it."""

    def __post_init__(self) -> None:
        known = self.level in ("R", "T3") and self.on_fault in ("raise", "log")
        if not known or min(self.every, self.calls, self.samples) < 1 or self.between < 0:
            raise GuardError(
                f"Guard: every={self.every}, level={self.level!r}, on_fault={self.on_fault!r}, "
                f"between={self.between}, calls={self.calls}, samples={self.samples}; expected "
                "numbers of at least 1, level R or T3, on_fault raise or log"
            )
        self.between = self.between or (1 if self.every == 1 else 8)

    def shared(self) -> dict[str, Any]:
        """What all ranks have to be told alike."""
        return {name: getattr(self, name) for name in SHARED}
