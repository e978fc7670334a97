"""What became of each wrong program, kept as a line of JSON, and the sums over them."""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.repair.programs import Wrong
from shardproof.agent.llm.answers import Answer
from shardproof.agent.llm.client import Form, Message, Model
from shardproof.agent.repair import Fixed, Question, Settings, fix
from shardproof.verifier.kernel.program.program import Node, Program

ROUNDS = (1, 2, 3)
Row = dict[str, float | int | str]


@dataclass(frozen=True)
class Outcome:
    """One wrong program and what became of it."""

    part: str
    name: str
    faults: int
    what: list[str]
    repaired: bool
    """And proved."""
    rounds: int
    by: str
    edits: list[str]
    right: bool
    """The repaired program, by numbers: of every rank for mutants, of a sample for the corpus."""
    same: bool
    """It is the known right program again."""
    tried: int
    seconds: float
    processor: float
    """Seconds of the processor, where other work shares the machine."""
    calls: int = 0
    """Questions to the model."""
    unusable: int = 0
    reason: str = ""
    tally: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """By tactic: edits tried, in agreement on numbers, judged, proved."""

    @property
    def none(self) -> bool:
        """Whether there is no program to repair."""
        return self.reason.startswith("no program")


class Counted:
    """A model whose answers are counted."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.calls = 0

    def ask(self, messages: Sequence[Message], form: Form | None = None) -> Answer:
        self.calls += 1
        return self.model.ask(messages, form)


def repaired(part: str, given: Wrong, settings: Settings, model: Model | None = None) -> Outcome:
    """Repair one program, and look at what was accepted."""
    what = list(given.what)
    source, program = given.source, given.program
    if source is None or program is None:
        return Outcome(
            part, given.name, given.faults, what, False, 0, "", [], False, False, 0, 0.0, 0.0,
            reason=given.reason,
        )  # fmt: skip
    question = Question(
        source.sequential, program, source.contract, given.stated, source.consts,
        max(given.faults, 3),
    )  # fmt: skip
    counted = Counted(model) if model is not None else None
    unusable = 0

    def tell(event: object) -> None:
        nonlocal unusable
        unusable += getattr(event, "verdict", "") == "unusable"

    begin, busy = time.perf_counter(), time.process_time()
    ended = fix(question, settings, counted, tell)
    seconds, spent = time.perf_counter() - begin, time.process_time() - busy
    done = isinstance(ended, Fixed)
    candidate = ended.found if done else ended.best
    tally: dict[str, dict[str, int]] = defaultdict(dict)
    for (tactic, stage), count in sorted(ended.tally.items()):
        tally[tactic][stage] = count
    for tactic in {e.tactic for e in candidate.edits} if done else ():
        tally[tactic]["used"] = 1
    same = done and given.twin is not None and alike(candidate.program, given.twin)
    return Outcome(
        part, given.name, given.faults, what, done, ended.rounds, ended.by if done else "",
        [str(e) for e in candidate.edits], done and source.right(candidate.program), same,
        sum(row.get("tried", 0) for row in tally.values()), round(seconds, 4), round(spent, 4),
        counted.calls if counted else 0, unusable, "" if done else ended.reason, dict(tally),
    )  # fmt: skip


def alike(one: Program, other: Program) -> bool:
    """Whether two programs compute their outputs by the same ops, whatever values are called."""
    return _digests(one) == _digests(other)


def _digests(program: Program) -> list[str]:
    made: dict[str, str] = {i.name: f"input {k}" for k, i in enumerate(program.inputs)}
    for node in program.nodes:
        text = repr(
            (node.op, sorted(node.attrs.items()), node.where, _body(node), node.timing,
             [made[v] for v in node.inputs])
        )  # fmt: skip
        digest = hashlib.sha256(text.encode()).hexdigest()
        made |= {name: f"{digest} {k}" for k, name in enumerate(node.outputs)}
    return [f"{o.role} {o.path} {made[o.value]}" for o in program.outputs]


def _body(node: Node) -> list[str]:
    return _digests(node.body) if node.body is not None else []


def summary(outcomes: Sequence[Outcome]) -> dict[str, Row]:
    """By part and number of faults."""
    out: dict[str, Row] = {}
    groups: dict[str, list[Outcome]] = {}
    for o in outcomes:
        if o.faults:
            groups.setdefault(f"mutants, {o.faults} faults", []).append(o)
        else:
            groups.setdefault("corpus", []).append(o)
    for name in sorted(groups):
        every = groups[name]
        mine = [o for o in every if not o.none]
        done = [o for o in mine if o.repaired]
        if not mine:
            continue
        times = sorted(o.seconds for o in mine)
        busy = sorted(o.processor for o in mine)
        out[name] = {
            "wrong": len(every),
            "programs": len(mine),
            "repaired": len(done),
            "share": round(len(done) / len(mine), 4),
            **{f"in {k} rounds": sum(o.rounds <= k for o in done) for k in ROUNDS},
            "fewer edits than faults": sum(0 < len(o.edits) < o.faults for o in done),
            "as many": sum(len(o.edits) == o.faults for o in done),
            "more": sum(len(o.edits) > o.faults > 0 for o in done),
            "the known program": sum(o.same for o in done),
            "false accepts": sum(not o.right for o in done),
            "median s": round(statistics.median(times), 2),
            "p95 s": round(_at(times, 0.95), 2),
            "median cpu s": round(statistics.median(busy), 2),
            "p95 cpu s": round(_at(busy, 0.95), 2),
            "by model": sum(o.by == "model" for o in done),
            "questions": sum(o.calls for o in mine),
            "unusable replies": sum(o.unusable for o in mine),
        }
    return out


def _at(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


STAGES = ("tried", "agree", "judged", "proved", "used")


def tactics(outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """By tactic: how often it was tried, agreed on numbers, was judged, proved, and used."""
    total: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        for tactic, row in outcome.tally.items():
            total[tactic].update(row)
    ranked = sorted(total.items(), key=lambda item: (-item[1]["used"], -item[1]["tried"]))
    return {name: {stage: row[stage] for stage in STAGES} for name, row in ranked}


def kept(path: Path) -> Iterator[Outcome]:
    """The outcomes in a file; a last line that was torn is taken away."""
    if not path.exists():
        return
    whole, end, torn = path.read_text(encoding="utf-8").rpartition("\n")
    if torn:
        path.write_text(whole + end, encoding="utf-8")
    for line in whole.splitlines():
        yield Outcome(**json.loads(line))


def keep(path: Path, outcome: Outcome) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(outcome)) + "\n")


__all__ = ["Outcome", "alike", "keep", "kept", "repaired", "summary", "tactics"]
