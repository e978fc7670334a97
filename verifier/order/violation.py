"""What a check answers: where an order goes wrong, with an execution that shows it."""

from dataclasses import dataclass

from shardproof.verifier.order.events import TimeProgram
from shardproof.verifier.order.matching import Place, Step
from shardproof.verifier.order.printing import show_event


@dataclass(frozen=True, slots=True)
class Trace:
    """The beginning of an execution: steps that can happen in this order."""

    program: TimeProgram
    steps: tuple[Step, ...]
    mode: str = "eager"
    """The machine: `eager` (nobody waits longer than the data asks), `waits` (a send waits for
    its receive, members of a collective for all others) or `queue` (and the collectives of a rank
    run one after another in issue order)."""

    def lines(self) -> list[str]:
        """One line a step."""
        out: list[str] = []
        for rank, index, part, phase in self.steps:
            item = self.program.of(rank)
            assert item is not None
            event = item.events[index]
            shown = show_event(event)
            if part >= 0:
                shown = f"part {part} of {shown}"
            out.append(f"rank {rank}: {phase} {shown}")
        return out


@dataclass(frozen=True, slots=True)
class Violation:
    """A program that can hang or compute with the wrong values."""

    check: str
    message: str
    events: tuple[Place, ...]
    trace: Trace | None = None
    path: tuple[str, ...] = ()
    """The conditions under which it happens."""
    ranks: tuple[int, ...] = ()
    """Further ranks on which the same events do the same."""

    def __str__(self) -> str:
        head = f"{self.check}: {self.message}"
        if self.ranks:
            head = f"{head}; also on ranks {', '.join(map(str, self.ranks))}"
        if self.path:
            head = f"{head} (where {', '.join(self.path)})"
        return "\n".join([head, *(f"  {place}" for place in self.events)])
