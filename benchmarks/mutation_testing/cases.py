"""Cases: a one-device program, a wrong and a right distributed one, and their contract.

    # id: MC-01                  what is said of the case, a `# key: text` each
    # title: ...
    program one ...
    --- wrong
    program many mesh(tp=2) ...
    --- right
    program many mesh(tp=2) ...
    --- contract
    input a tp=S(1)

A wrong program that cannot even be read (its shapes do not fit, a value is not defined) is meant
so where the case says `# fault: structure`. Either program may be left out. `--- contract right` is
a contract for the right program alone. In a case of `# kind: time` the sections hold events, in one
of `# kind: schedule` schedules.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract, ContractError
from shardproof.verifier.kernel.program.errors import IRError, MalformedError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import compose, read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof, Trace, Unknown, Verdict

Triple = tuple[Program, Program, Contract]


@dataclass(frozen=True)
class Case:
    """One file of the corpus."""

    path: Path
    about: dict[str, str]
    sections: dict[str, str] = field(repr=False)

    @property
    def kind(self) -> str:
        return self.about.get("kind", "program")

    @property
    def sides(self) -> tuple[str, ...]:
        """`wrong` and `right`, as far as the file has them."""
        return tuple(s for s in ("wrong", "right") if s in self.sections)

    def programs(self, side: str) -> Triple:
        """The one-device program, the composed distributed one, and the contract.

        Raises:
            MalformedError, ContractError: located, as every reader does.
        """
        name = str(self.path)
        one = parse_text(self.sections["one"], name)
        many = parse_text(self.sections[side], name)
        asked = self.sections.get(f"contract {side}", self.sections.get("contract", ""))
        stated = read_contract(asked, one, many, name)
        composed, contract = compose(many, stated)
        return one, composed, contract


def read_case(path: Path) -> Case:
    """Read one file. Line numbers in errors are those of the file.

    Raises:
        MalformedError: a section that is unknown, or given twice.
    """
    sections: dict[str, list[str]] = {"one": []}
    about: dict[str, str] = {}
    current, before = sections["one"], 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        marker = re.fullmatch(r"---\s*(.*?)\s*", line)
        note = re.fullmatch(r"#\s*(\w+):\s*(.*)", line)
        if marker:
            name = marker[1]
            if name.split(" ")[0] not in ("wrong", "right", "contract") or name in sections:
                raise MalformedError(f"section {name!r}", where=f"{path}:{number}")
            current = sections[name] = [""] * number
            before = number
        elif note and not before:
            about.setdefault(note[1], note[2])
            current.append("")
        else:
            current.append(line)
    return Case(path, about, {k: "\n".join(v) for k, v in sections.items()})


@dataclass(frozen=True)
class Judged:
    """What the verifier says of one side of a case."""

    case: Case
    side: str
    outcome: str
    """`proved`, `refuted`, `unknown`; `safe` for events and schedules without a violation;
    `unreadable` where a file is faulty itself."""
    message: str
    where: str
    """The source line, or the op, that a refutation names."""
    witness: bool
    """Whether a refutation was shown: replayed on numbers, or as a run in time."""
    seconds: float
    verdict: Verdict | None = None

    @property
    def right(self) -> bool:
        """Whether this is the answer that the case asks for."""
        wanted = ("refuted",) if self.side == "wrong" else ("proved", "safe")
        return self.outcome in wanted

    @property
    def false(self) -> bool:
        """Whether this is a wrong answer: a wrong program let through, a right one refused."""
        return not self.right and self.outcome != "unknown"


def judge(case: Case, side: str) -> Judged:
    """Decide one side; a program that cannot be read is refuted where it breaks."""
    start = time.perf_counter()
    verdict: Verdict | None = None
    if case.kind in ("time", "schedule"):
        outcome, message, where, shown = _in_time(case, side)
    else:
        try:
            verdict = verify(Problem(*case.programs(side)))
            outcome, message, where, shown = _told(verdict)
        except (MalformedError, ContractError, IRError) as error:
            place = error.where if isinstance(error, MalformedError) else ""
            meant = side == "wrong" and case.about.get("fault") == "structure"
            outcome = "refuted" if meant else "unreadable"
            message, where, shown = str(error), place or str(error), True
    seconds = time.perf_counter() - start
    return Judged(case, side, outcome, message, where, shown, seconds, verdict)


def _told(verdict: Verdict) -> tuple[str, str, str, bool]:
    location = None if isinstance(verdict, Proof) else verdict.location
    where = f"{location.source} {location.text}".strip() if location else ""
    match verdict:
        case Proof():
            return "proved", "; ".join(verdict.scope), where, False
        case Counterexample(witness=w):
            if isinstance(w, Trace):
                return "refuted", f"{w.check}: {w.message}", where, True
            at = f"{w.output}{list(w.index)} on {w.rank}"
            return "refuted", f"{at}: got {w.got:.6g}, expected {w.expected:.6g}", where, True
        case Unknown():
            return "unknown", verdict.reason, where, False


def _in_time(case: Case, side: str) -> tuple[str, str, str, bool]:
    """Events or a schedule: every violation is replayed as a run."""
    from shardproof.synthesis import schedules
    from shardproof.verifier.order.text import parse_text as parse_events
    from shardproof.verifier.order.verify import shown, verify_time

    text, name = case.sections[side], str(case.path)
    try:
        if case.kind == "schedule":
            faults = schedules.check_schedule(schedules.parse(text, name))
            if not faults:
                return "safe", "", "", False
            return "refuted", str(faults[0]), str(faults[0]), True
        found = verify_time(parse_events(text, name))
    except MalformedError as error:
        return "refuted", str(error), error.where, True
    if not found:
        return "safe", "", "", False
    first = found[0]
    where = "; ".join(map(str, first.events))
    return "refuted", f"{first.check}: {first.message}", where, shown(first)
