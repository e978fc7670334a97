"""What a repair remembers: the best prefix, what was refuted, and what is banned."""

from collections import Counter
from dataclasses import dataclass, field

from agent.loop.question import Candidate
from verifier.verdict import Counterexample

TWICE = 2
"""As often as a tactic may end in the same finding before it is banned."""
KEPT = 12
"""Refuted candidates that are told, the last ones."""


@dataclass
class Memory:
    """One repair. A ban holds as long as the repair goes on from the same program."""

    start: Candidate
    """What this context edits: the best prefix when it began."""
    best: Candidate
    refuted: dict[str, str] = field(default_factory=dict[str, str])
    """Edits as words, and the finding they ended in; edits after the same start alone."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def note(self, found: Candidate, added: str) -> None:
        """A candidate that is not proved; `added` are its edits after the start, in words."""
        self.refuted[added] = found.finding
        tactics = {e.tactic for e in found.edits[len(self.start.edits) :]}
        self.counts.update((tactic, found.finding) for tactic in tactics)
        wrong = isinstance(found.verdict, Counterexample)  # what is unknown leads nowhere
        if wrong and found.held.rank > self.best.held.rank:
            self.best = found

    @property
    def banned(self) -> tuple[str, ...]:
        """Tactics that ended in one finding twice."""
        return tuple(sorted({t for (t, _), n in self.counts.items() if n >= TWICE}))

    def told(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.refuted.items())[-KEPT:]

    def fresh(self) -> bool:
        """Go on from the best prefix. Whether that is another program than before."""
        if self.best is self.start:
            return False
        self.start = self.best
        self.refuted.clear()
        self.counts.clear()
        return True
