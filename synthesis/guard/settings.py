"""What a guard is told."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shardproof.synthesis.guard.errors import GuardError

Level = Literal["R", "T3"]
SHARED = (
    "every", "cycle", "level", "on_fault", "canary", "agree", "between", "calls", "samples", "seed",
    "optimizers",
)  # fmt: skip
"""What all ranks have to be told alike."""
SILENT = ("canary", "agree", "seed", "optimizers")


@dataclass(kw_only=True, eq=False)
class Settings:
    """The settings of a `Guard`.

    Raises:
        GuardError: a value that there is not.
    """

    every: int = 1
    """Look at one call of so many in each group, drawn anew each time."""
    cycle: int = 0
    """Watch one optimizer step of so many, drawn anew each time, and in it one call of
    `every / cycle`; in the others collectives are left alone, and cost nothing. By default (0) 1
    where `every` is below 20, else `every / 10`, 10 at most."""
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
    """Compare before every so many optimizer steps, of those that are watched. By default (0) every
    8th where all are watched and `every` is above 1, else each. An alarm names the step that the
    call was in."""
    optimizers: bool = True
    """Whether a step ends where an optimizer steps; else where the program calls `guard.step()`,
    and ranks may take as many optimizer steps as they like."""
    calls: int = 500
    """Compare at least after so many calls of a group of all ranks, until the first step that is
    not watched. Later steps look at the first `10 * calls` of each group at most."""
    keep: int = 64 << 20
    """Bytes of sampled calls that are kept for a diagnosis."""
    samples: int = 64
    """Places at which sums are checked (T2)."""
    seed: int | None = None
    """What keys and samples are drawn from; by default rank 0 draws it."""

    def __post_init__(self) -> None:
        known = self.level in ("R", "T3") and self.on_fault in ("raise", "log")
        if (
            not known
            or min(self.every, self.calls, self.samples) < 1
            or min(self.between, self.cycle) < 0
        ):
            shown = {n: v for n, v in self.shared().items() if n not in SILENT}
            raise GuardError(
                f"Guard: {', '.join(f'{n}={v!r}' for n, v in shown.items())}; expected "
                "numbers of at least 1, level R or T3, on_fault raise or log"
            )
        self.cycle = min(self.every, self.cycle or min(10, max(1, self.every // 10)))
        self.between = self.between or (8 if self.every > 1 and self.cycle == 1 else 1)

    def shared(self) -> dict[str, Any]:
        """What all ranks have to be told alike."""
        return {name: getattr(self, name) for name in SHARED}
