"""The loop: ask, compare with the code, feed the difference back.

At most three programs in one context. Then a fresh context is started with the facts that were
refuted and nothing else. The same difference twice bans what led to it.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from shardproof.agent.llm.answers import Answer, Completion, NoModel, Unanswered, Usage, exit_of
from shardproof.agent.llm.client import Form, Message, Model
from shardproof.agent.llm.dialogue import Malformed, Read
from shardproof.agent.llm.replies import Unsupported
from shardproof.agent.llm.translating import Task, Turn, prompted, translate
from shardproof.agent.run.errors import Exit
from shardproof.agent.translation.trust import (
    BackwardDiffers,
    Bound,
    Differs,
    DisplayOnly,
    Judged,
    NotRunnable,
)
from shardproof.verifier.kernel.program.program import Program

ROUNDS = 3
CONTEXTS = 2

Judge = Callable[[Program], Judged]
Tell = Callable[[Sequence[str]], None]
"""Called with the lines of each difference, as they are fed back."""


@dataclass(frozen=True)
class GivenUp:
    """No translation: what the last attempts were refuted with."""

    reason: str
    differences: tuple[Differs, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
    unanswered: Unanswered | None = None


@dataclass(frozen=True)
class Report:
    """How the loop of one subject ended, and what it took."""

    end: Bound | DisplayOnly | BackwardDiffers | GivenUp
    asked: int
    """Programs that were judged."""
    differences: tuple[Differs, ...]
    """All that were fed back, in order."""
    text: str = ""
    """The last program, as it was written."""
    usage: Usage = field(default_factory=Usage)

    @property
    def exit(self) -> Exit:
        match self.end:
            case Bound():
                return Exit.PROVED
            case GivenUp(unanswered=silent) if silent is not None and not self.differences:
                return exit_of(silent)
            case _:
                return Exit.NOT_PROVED


def run_rounds(model: Model, task: Task, judge: Judge, tell: Tell) -> Report:
    """Ask until a program is bound, or rounds, contexts, budget or replies are at their end."""
    seen: list[Differs] = []
    kinds: Counter[str] = Counter()
    usage, asked, text = Usage(), 0, ""
    fault: BackwardDiffers | None = None

    def ended(end: Bound | DisplayOnly | BackwardDiffers | GivenUp) -> Report:
        return Report(end, asked, tuple(seen), text, usage)

    for _ in range(CONTEXTS):
        prompt = prompted(task)
        turns: list[Turn] = []
        for _ in range(ROUNDS):
            found = translate(model, task, turns, prompt)
            if isinstance(found, Malformed):
                usage += found.usage
                return ended(fault or GivenUp(str(found), tuple(seen)))
            if not isinstance(found, Read):
                if fault is not None:
                    return ended(fault)
                why = "; ".join(seen[-1].lines()) if seen else ""
                reason = f"{found}; last difference: {why}" if why else str(found)
                return ended(GivenUp(reason, tuple(seen), unanswered=found))
            usage += found.usage
            made = found.value
            if made.program is None:
                lines = "; ".join(f"line {u.line}: {u.why}" for u in made.unsupported)
                return ended(GivenUp(f"it cannot be expressed: {lines}", (), made.unsupported))
            asked, text = asked + 1, made.text
            match judge(made.program):
                case Bound() as bound:
                    return ended(bound)
                case BackwardDiffers() as backward:
                    if fault is not None:
                        return ended(backward)
                    fault = backward
                    tell(backward.advice())
                    turns.append(Turn(made.text, tuple(backward.advice())))
                case NotRunnable() as stuck:
                    return ended(DisplayOnly(made.program, str(stuck)))
                case Differs() as differs:
                    seen.append(differs)
                    kinds[differs.kind] += 1
                    tell(differs.lines())
                    turns.append(Turn(made.text, tuple(differs.lines())))
                    if kinds[differs.kind] == 2:
                        break
        task = replace(task, refuted=_facts(seen, kinds))
    return ended(
        fault or GivenUp(f"{asked} programs, none of which agrees with the code", tuple(seen))
    )


def _facts(seen: Sequence[Differs], kinds: Counter[str]) -> tuple[str, ...]:
    """What was refuted, each kind once; what came back twice is banned."""
    out: dict[str, str] = {}
    for differs in seen:
        twice = "twice, so not in this way again: " if kinds[differs.kind] > 1 else ""
        out[differs.kind] = f"{twice}{'; '.join(differs.lines())}"
    return tuple(out.values())


class Replies:
    """A model whose replies were written beforehand: JSON of the form, or the program alone."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = [_wrapped(text) for text in texts]

    def ask(self, messages: Sequence[Message], form: Form | None = None) -> Answer:
        """The next reply."""
        del messages, form
        if not self.texts:
            return NoModel("no reply is left")
        return Completion(self.texts.pop(0), Usage(), model="a file")


def _wrapped(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    if lines and next((line for line in lines if line.strip()), "").startswith("program "):
        return json.dumps({"program": text, "unsupported": []})
    return text
