"""What came of every candidate: each is verified, written down as a patch where that is possible,
and held against the memory there is. No candidate is judged by its price alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from shardproof.synthesis.emit import EmitError, ModelFacts, emit
from shardproof.synthesis.planner.assign import Point
from shardproof.synthesis.planner.constraints import show_bytes
from shardproof.synthesis.planner.describe import describe
from shardproof.synthesis.planner.plan import PassedOver
from shardproof.synthesis.planner.planner import Synthesis
from shardproof.synthesis.planner.scoring import Candidate, Refusal
from shardproof.synthesis.planner.search import ROOM
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Trace, Unknown, Verdict, Witness
from shardproof.verifier.verification import verify

Status = Literal["proved", "refuted", "unproved", "emitter", "memory", "lowering"]
"""What a candidate ended in: `emitter`: no module style or patch stands for it; `memory`: it needs
more than there is; `lowering`: an op for which no distribution was found."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of one candidate."""

    status: Status
    reason: str = ""
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Considered:
    """A plan that the search came by."""

    name: str
    """The tactic or the move that it came from."""
    point: Point
    judgement: Judgement
    chosen: bool = False
    why: str = ""
    """Why it was not chosen: what it failed at, or how much dearer it is."""
    differs: tuple[str, ...] = ()
    """What it does otherwise than the chosen plan."""
    step_s: float | None = None
    memory_bytes: int | None = None
    comm_bytes: int | None = None


@dataclass(frozen=True)
class Judge:
    """Judges candidates of one search. Without `facts`, no patch is tried."""

    made: Synthesis
    consts: Mapping[str, Any] | None = None
    facts: ModelFacts | None = None
    limit: float | None = None
    """Bytes per rank; None: as was constrained for, or what a device has."""

    @property
    def memory(self) -> float:
        asked = self.made.asked
        return self.limit or asked.constraints.memory_bytes or asked.cluster.device.memory_bytes

    def __call__(self, candidate: Candidate) -> Judgement:
        """Verify, write, weigh: the first that fails decides."""
        made = self.made
        low = candidate.lowered
        problem = Problem(made.found.program, low.program, low.contract, consts=self.consts or {})
        match verdict := verify(problem):
            case Counterexample():
                return Judgement("refuted", shown(verdict), verdict)
            case Unknown():
                return Judgement("unproved", verdict.reason, verdict)
            case Proof():
                return replace(self.obstacle(candidate) or Judgement("proved"), verdict=verdict)

    def obstacle(self, candidate: Candidate) -> Judgement | None:
        """Why a candidate is of no use even if it is proved; None where it is of use."""
        refused = self.emitted(candidate)
        if refused is not None:
            return refused
        needed = candidate.memory_bytes
        if needed > self.memory:
            over = f"{show_bytes(needed)} per rank, and there are {show_bytes(self.memory)}"
            return Judgement("memory", over)
        return None

    def emitted(self, candidate: Candidate) -> Judgement | None:
        """Why no patch can be written for a candidate; None where one can."""
        state = self.made.found.state
        obstacle = state.obstacle(candidate.point, candidate.lowered) if state is not None else None
        if obstacle is not None:
            return Judgement("emitter", obstacle.text)
        if self.facts is None:
            return None
        asked = self.made.asked
        found = replace(self.made.found, best=candidate)
        try:
            emit(self.facts, describe(found, asked, self.made.one_device))
        except EmitError as error:
            return Judgement("emitter", str(error))
        return None


def candidates(judge: Judge, count: int = 5) -> tuple[Considered, ...]:
    """The chosen plan, the next best and then those that are none, each with what came of it."""
    found = judge.made.found
    best = found.best.point
    rows = [_row(judge, c) for c in (found.best, *found.others[: max(count - 1, 0)])]
    for r in sorted(found.refused, key=lambda r: r.origin not in found.failed)[:count]:
        judgement, why = Judgement(r.kind, r.reason), f"{WORDS[r.kind]}: {r.reason}"
        differs = differences(best, r.point)
        rows.append(Considered(r.origin, r.point, judgement, why=why, differs=differs))
    return tuple(rows)


def _row(judge: Judge, candidate: Candidate) -> Considered:
    best = judge.made.found.best
    judgement = judge(candidate)
    return Considered(
        candidate.origin,
        candidate.point,
        judgement,
        candidate is best,
        "" if candidate is best else against(best, candidate, judgement),
        differences(best.point, candidate.point),
        candidate.price.seconds,
        candidate.memory_bytes,
        candidate.estimate.comm_bytes,
    )


WORDS: dict[Status, str] = {
    "refuted": "refuted",
    "unproved": "not proved",
    "emitter": "refused by the emitter",
    "memory": "too much memory",
    "lowering": "cannot be distributed",
}


def against(best: Candidate, other: Candidate, judgement: Judgement) -> str:
    """Why `other` is not the better choice, in one clause."""
    if judgement.status != "proved":
        return f"{WORDS[judgement.status]}: {judgement.reason}"
    return costs(best, other, float("inf"))


def costs(best: Candidate, other: Candidate, limit: float) -> str:
    """What `other` costs more than the chosen plan: parameters, memory beyond `limit` bytes per
    rank, its ops. The first two count before these: the mesh is there to split the model."""
    kept, least = other.estimate.parameters, best.estimate.parameters
    needed = other.memory_bytes
    parts: list[str] = []
    if kept > least * ROOM:
        more = show_bytes(kept - least)
        parts.append(f"keeps {more} more of parameters on every rank, which the mesh is to split")
    if needed > limit:
        parts.append(f"needs {show_bytes(needed)} per rank, and there are {show_bytes(limit)}")
    return "; ".join([*parts, _dearer(best.estimate.step_s, other.estimate.step_s)])


def _dearer(mine: float, its: float) -> str:
    ratio = its / mine if mine else 1.0
    if abs(ratio - 1) < 0.0005:
        return "its ops cost as much as those of the chosen plan"
    how = "more" if ratio > 1 else "less"
    return f"its ops cost {abs(ratio - 1):.1%} {how} than those of the chosen plan"


def passed_over(
    made: Synthesis, failed: Mapping[Point, PassedOver], count: int = 5
) -> tuple[PassedOver, ...]:
    """Why the next best candidates, those that `failed` when they were tried, and the tactics that
    are no candidates were not chosen. Nothing is judged here."""
    found = made.found
    limit = found.state.limit if found.state is not None else float("inf")
    rows = dict(failed)
    rows.pop(found.best.point, None)
    for other in [c for c in found.others if c.point not in failed][:count]:
        why, needs = costs(found.best, other, limit), other.memory_bytes
        rows[other.point] = PassedOver(other.origin, why, other.price.seconds, needs)
    refused = [
        PassedOver(name, f"{WORDS[result.kind]}: {result.reason}")
        for name, _, result in found.starts
        if isinstance(result, Refusal) and result.point not in rows
    ]
    return (*rows.values(), *refused)


def differences(chosen: Point, other: Point) -> tuple[str, ...]:
    """What `other` does otherwise than `chosen`."""
    mine = dict(chosen.styles)
    out = [f"{p} {mine[p]} -> {s}" for p, s in other.styles if mine.get(p, s) != s]
    if chosen.stream != other.stream:
        out.append(f"stream {chosen.stream} -> {other.stream}")
    return tuple(out)


def shown(verdict: Counterexample) -> str:
    """A counterexample in one line."""
    witness = verdict.witness
    if isinstance(witness, Trace):
        return f"{witness.check}: {witness.message}"
    assert isinstance(witness, Witness)
    rank = ", ".join(f"{name}={at}" for name, at in witness.rank.items()) or "0"
    index = ", ".join(map(str, witness.index))
    return (
        f"{witness.output}[{index}] on rank {rank} is {witness.got:.6g}, "
        f"one device gives {witness.expected:.6g}"
    )
