"""An alarm: what the guard found, as every rank says it."""

from dataclasses import dataclass
from typing import Any

from shardproof.synthesis.guard.fingerprint.outcome import Verdict


@dataclass(frozen=True)
class Alarm:
    """One call that went wrong. `verdict.culprit_ranks` are global ranks that hold wrong bits, or
    wrote a buffer while it was sent, or met in another call."""

    step: int
    seq: int
    group: str
    ranks: tuple[int, ...]
    """The members."""
    verdict: Verdict

    def __str__(self) -> str:
        who = ", ".join(map(str, self.ranks))
        return (
            f"step {self.step}, call {self.seq} of group {self.group} (ranks {who}): {self.verdict}"
        )

    def to_json(self) -> dict[str, Any]:
        """As in the log."""
        call = ("step", "seq", "group", "ranks")
        found = (
            "op", "check", "culprit_ranks", "index_range", "expected", "actual", "probable_fault",
        )  # fmt: skip
        said = {name: getattr(self, name) for name in call}
        said |= {name: getattr(self.verdict, name) for name in found}
        return {"event": "alarm", "text": str(self), **said}
