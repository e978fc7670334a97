"""The loop of repair: propose, judge, remember, start afresh from the best prefix.

A round is one search from one program, or one question to the model. The search comes first; the
model is asked where the search finds nothing, or finds several repairs alike. Three questions make
a context. Whoever proposes, `verify` decides: nothing but a `Proof` ends the loop as a repair.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shardproof.agent.llm.answers import Cancelled, Unanswered
from shardproof.agent.llm.client import Model
from shardproof.agent.llm.dialogue import Malformed, Read
from shardproof.agent.llm.repairing import Earlier, Task, repair
from shardproof.agent.repair.feedback import Level, credit, told
from shardproof.agent.run import events
from shardproof.agent.verdict.verdicts import word
from shardproof.synthesis.repair import search as enumerated
from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.prefix import Beside
from shardproof.synthesis.repair.question import Candidate, Question
from shardproof.synthesis.repair.search import Clock, Repaired, Tally
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.verdict import Counterexample

ROUNDS_IN_CONTEXT = 3
TWICE = 2
"""As often as a tactic may end in the same finding before it is banned."""
KEPT = 12
"""Refuted candidates that are told, the last ones."""
Tell = Callable[[events.Event], None]


@dataclass(frozen=True)
class Settings:
    rounds: int = 6
    seconds: float = 30.0
    search: float = 12.0
    """Seconds of one search; 0: the model alone."""
    level: Level = Level.FIXES
    most: int = 4
    """Edits of one reply."""
    clock: Clock = time.perf_counter
    """What all seconds are read from; the processor's where other work shares the machine."""


@dataclass(frozen=True)
class Fixed:
    """A program that is proved, by as few of the edits as possible."""

    found: Candidate
    rounds: int
    by: str
    """`search` or `model`; `nobody` where there was nothing to repair."""
    seconds: float
    tally: Tally


@dataclass(frozen=True)
class NotFixed:
    reason: str
    best: Candidate
    """The best prefix."""
    rounds: int
    seconds: float
    tally: Tally
    answer: Unanswered | None = None
    """Why the model went silent, where it did."""


def fix(
    question: Question,
    settings: Settings,
    model: Model | None = None,
    tell: Tell = lambda _: None,
) -> Fixed | NotFixed:
    """Repair the distributed program of a question.

    Raises:
        IRError: the programs are not well formed, or the contract does not fit them.
    """
    return _Loop(question, settings, model, tell).run()


@dataclass
class Memory:
    """One repair. A ban holds as long as the repair goes on from the same program."""

    start: Candidate
    """What this context edits: the best prefix when it began."""
    best: Candidate
    level: Level = Level.FIXES
    refuted: dict[str, str] = field(default_factory=dict[str, str])
    """Edits as words, and what is right and wrong after them; edits after the same start alone."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def note(self, found: Candidate, added: str) -> None:
        """A candidate that is not proved; `added` are its edits after the start, in words."""
        self.refuted[added] = credit(self.level, self.start, found)
        tactics = {e.tactic for e in found.edits[len(self.start.edits) :]}
        if not found.held.rank > self.start.held.rank:  # else they are on the way
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


class _Loop:
    def __init__(
        self, question: Question, settings: Settings, model: Model | None, tell: Tell
    ) -> None:
        self.question, self.settings, self.model, self.tell = question, settings, model, tell
        self.begun = settings.clock()
        self.rounds = self.context = 0
        self.reason = ""
        self.answer: Unanswered | None = None
        self.tally: Tally = Tally()
        self.memory: Memory

    def run(self) -> Fixed | NotFixed:
        first = self.question.judge(())
        self.memory = Memory(first, first, self.settings.level)
        if first.proved:
            return self._ended(first, "nobody")
        new = True
        while self._open():
            self.context += 1
            found = (self._searched(self.settings.search) if new else None) or self._talked()
            if found is not None:
                return found
            new = self.memory.fresh()
            if not new and self.model is None:
                break
        found = self._once_more(first)
        if found is not None:
            return found
        reason = self.reason or f"{self.rounds} rounds without a proof"
        return NotFixed(
            reason, self.memory.best, self.rounds, self._seconds(), self.tally, self.answer
        )

    def _once_more(self, first: Candidate) -> Fixed | None:
        """The search from the program as given, with all the time that is left."""
        if not self._open() or self.settings.search <= 0 or self._left() <= self.settings.search:
            return None
        self.memory.start = first
        return self._searched(self._left())

    def _searched(self, most: float) -> Fixed | None:
        """Enumerated edits of the program that this context starts from, cheapest first."""
        seconds = min(most, self._left())
        if seconds <= 0:
            return None
        q, start = self.question, self.memory.start
        self._round("search")
        found = enumerated.repair(
            replace(q, distributed=start.program), seconds=seconds, clock=self.settings.clock
        )
        self.tally.update(found.tally)
        if not isinstance(found, Repaired):
            self.reason = found.reason
            self._judged(found.best)
            return None
        fixed = self._judged(found.edits)
        if fixed is None:
            self.reason = "the repair of the search is not proved as a whole"
            return None
        chosen = self._chosen(fixed, (found.edits, *found.others)) if found.others else None
        return self._ended(*(chosen or (fixed, "search")))

    def _chosen(
        self, cheapest: Candidate, several: tuple[tuple[Edit, ...], ...]
    ) -> tuple[Candidate, str] | None:
        """The model's choice where the search found several repairs of the same cost."""
        shown = self.settings.level is Level.FIXES and all(len(edits) == 1 for edits in several)
        if self.model is None or not shown or not self._open():
            return None
        self._round("model")
        found = self._asked((), tuple(edits[0] for edits in several))
        if found is None or not found.proved or len(found.edits) > len(cheapest.edits):
            return None
        return found, "model"

    def _talked(self) -> Fixed | None:
        """Up to three questions, each with what became of the answers before."""
        said: list[Earlier] = []
        for _ in range(ROUNDS_IN_CONTEXT):
            if self.model is None or not self._open():
                return None
            self._round("model")
            found = self._asked(tuple(said))
            if isinstance(found, Candidate) and found.proved:
                return self._ended(found, "model")
            if isinstance(found, Candidate):
                level = self.settings.level
                gained = credit(level, self.memory.start, found)
                said.append(Earlier(self.reply, f"{gained}\n{told(level, found.verdict)}"))
        return None

    def _asked(self, said: tuple[Earlier, ...], listed: tuple[Edit, ...] = ()) -> Candidate | None:
        """One question; a candidate where the reply is one."""
        assert self.model is not None
        q, memory, level = self.question, self.memory, self.settings.level
        if level is Level.FIXES and not listed:
            listed = tuple(q.prefixes.suggested(memory.start.program))
        shown = level.rank >= Level.RELATION.rank
        task = Task(
            q.sequential,
            memory.start.program,
            told(level, memory.start.verdict, listed),
            q.stated,
            refuted=memory.told(),
            most=self.settings.most,
            banned=memory.banned,
            earlier=said,
            beside=q.prefixes.beside(memory.start.program) if shown else Beside(),
            accepts=lambda edits: q.apply(edits, memory.start.program),
        )
        found = repair(self.model, task)
        match found:
            case Read():
                self.reply = found.value.text
                if found.value.diagnosis:
                    self.tell(events.ModelDiagnosed(words=found.value.diagnosis))
                return self._judged(found.value.edits)
            case Malformed():
                self._tell_unusable("; ".join(found.problems))
            case _:
                self.answer, self.model = found, None
                self.reason = str(found)
                self.tell(events.Warned(message=f"the model is not asked again: {found}"))
        return None

    def _judged(self, edits: tuple[Edit, ...]) -> Candidate | None:
        """The verdict on the start with these edits, remembered where it is no proof."""
        begun = time.perf_counter()
        if not edits:
            return None
        try:
            found = self.question.judge(edits, self.memory.start)
        except IRError as error:
            self._tell_unusable(str(error))
            return None
        self.tally.update((e.tactic, "judged") for e in edits)
        self.tell(
            events.RepairCandidate(
                round=self.rounds,
                edits=[str(e) for e in found.edits],
                tactics=[e.tactic for e in found.edits],
                verdict=word(found.verdict),
                finding=found.finding,
                holds="" if found.proved else str(found.held),
                seconds=round(time.perf_counter() - begun, 3),
            )
        )
        if not found.proved:
            self.memory.note(found, "; ".join(map(str, edits)))
        return found

    def _ended(self, found: Candidate, by: str) -> Fixed:
        fewest = self.question.fewest(found)
        return Fixed(fewest, self.rounds, by, self._seconds(), self.tally)

    def _round(self, by: str) -> None:
        self.rounds += 1
        start = [str(e) for e in self.memory.start.edits]
        self.tell(
            events.RepairRound(
                round=self.rounds,
                context=self.context,
                by="search" if by == "search" else "model",
                start=start,
                banned=list(self.memory.banned),
            )
        )

    def _tell_unusable(self, why: str) -> None:
        self.tell(
            events.RepairCandidate(
                round=self.rounds, edits=[], tactics=[], verdict="unusable", finding=why
            )
        )

    def _open(self) -> bool:
        if isinstance(self.answer, Cancelled):
            return False
        return self.rounds < self.settings.rounds and self._left() > 0

    def _left(self) -> float:
        return self.settings.seconds - self._seconds()

    def _seconds(self) -> float:
        return self.settings.clock() - self.begun
