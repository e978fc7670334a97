"""Why a module does not have a style: answered by trying it. Every answer is a verdict."""

from dataclasses import dataclass, replace
from typing import Literal as OneOf

from shardproof.synthesis.optimum.best import lower_bound
from shardproof.synthesis.planner.assign import PlanError, misfit, options
from shardproof.synthesis.planner.constraints import ALIASES, STYLES, ConstraintError, named
from shardproof.synthesis.planner.judging import (
    WORDS,
    Judge,
    Judgement,
    against,
    differences,
    shown,
)
from shardproof.synthesis.planner.literal import LiteralError, literal
from shardproof.synthesis.planner.planner import Synthesis, can_emit, synthesize
from shardproof.synthesis.planner.roles import Module
from shardproof.synthesis.planner.scoring import Candidate, Refusal
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Unknown, Verdict

Answer = OneOf[
    "chosen", "misfit", "refuted", "unproved", "emitter", "memory", "lowering", "dearer", "cheaper"
]


@dataclass(frozen=True, slots=True)
class WhyNot:
    """What came of giving a module another style."""

    path: str
    style: str
    has: str
    """The style that the plan gives it."""
    answer: Answer
    reason: str
    fits: tuple[str, ...]
    """Styles that fit the module."""
    judgement: Judgement | None = None
    """Of the best plan with the style."""
    differs: tuple[str, ...] = ()
    """What that plan does otherwise than the chosen one."""
    step_s: float | None = None
    memory_bytes: int | None = None
    comm_bytes: int | None = None
    least: float | None = None
    """What all ops cost at least with the style, whatever else is placed, as a share of what they
    cost in the plan; None if not known."""
    bare: str = ""
    """The verdict on the style without the collectives around it."""
    bare_verdict: Verdict | None = None

    @property
    def holds(self) -> bool:
        """Whether a plan with the style is proved, can be written, and fits."""
        return self.judgement is not None and self.judgement.status == "proved"

    def lines(self) -> list[str]:
        """The answer for a person."""
        out = [f"{self.path} {self.style}: {self.reason}"]
        if self.differs:
            out.append("the plan with it: " + ", ".join(self.differs))
        if self.bare and self.bare not in self.reason:
            out.append(f"without collectives: {self.bare}")
        if self.least is not None:
            least = f"{self.least:.1%} of the plan"
            out.append(f"with it no placement of the other ops costs less than {least} (certified)")
        if self.answer == "misfit":
            out.append("fits: " + ", ".join(self.fits))
        return out


def why_not(judge: Judge, path: str, style: str, *, bare: bool = False) -> WhyNot:
    """Plan with the style pinned and judge what comes out.

    For a style that means nothing for the module, its code runs on local tensors and the verifier
    decides. With `bare` this is done in every case.

    Raises:
        ConstraintError: no such module or style, or a path that names several modules.
    """
    made = judge.made
    tp = made.plan.tp
    words = f"why not {path} {style}"
    style = ALIASES.get(style.lower(), style)
    if style not in STYLES:
        raise ConstraintError(f"no style {style!r}", words, expected=", ".join(STYLES))
    found = named(path, made.found.modules, words)
    if len(found) > 1:
        raise ConstraintError(
            f"{len(found)} modules", words, expected="one of " + ", ".join(m.path for m in found)
        )
    if tp is None:
        raise ConstraintError("nothing splits the model", words, expected="a mesh with tp above 1")
    module, size = found[0], made.plan.tp_size
    has = made.found.best.point.style(module.path)
    answer = _answer(judge, module, style, has, size)
    if answer.answer in ("dearer", "cheaper", "memory", "emitter", "lowering"):
        answer = replace(answer, least=_least(made, module.path, style))
    if bare or answer.answer in ("misfit", "lowering"):
        verdict, told = _bare(judge, module, style, tp, size)
        refuted = answer.answer == "misfit" and isinstance(verdict, Counterexample)
        answer = replace(answer, bare=told, bare_verdict=verdict)
        if refuted:
            answer = replace(answer, answer="refuted", reason=f"refuted: {told}; {answer.reason}")
    return answer


def _answer(judge: Judge, module: Module, style: str, has: str, size: int) -> WhyNot:
    made = judge.made
    best = made.found.best
    fits = tuple(s for s in options(module, size) if s == "replicate" or can_emit(module, s))
    out = WhyNot(module.path, style, has, "misfit", "", fits)
    if style == has:
        judgement = judge(best)
        told = "the plan does that" if judgement.status == "proved" else judgement.reason
        out = replace(out, answer="chosen", reason=told, judgement=judgement)
        return _priced(out, best)
    unfit = misfit(module, style, size)
    if unfit is not None:
        return replace(out, reason=unfit)
    if not can_emit(module, style):
        what = f"no {style} style is emitted for {module.kind}"
        return replace(out, answer="emitter", reason=what)
    try:
        again = _pinned(made, module.path, style)
    except PlanError as error:
        return _refused(judge, module, style, out, str(error))
    other = again.found.best
    judgement = replace(judge, made=again, limit=judge.memory)(other)
    reason = against(best, other, judgement)
    word: Answer = "dearer" if other.score >= best.score else "cheaper"
    if judgement.status != "proved":
        word = judgement.status
    differs = differences(best.point, other.point)
    if len(differs) > 1 and made.found.state is not None:
        point = best.point.with_style(module.path, style)
        alone = made.found.state.score(point, f"{module.path} -> {style}")
        if isinstance(alone, Refusal):
            reason += f"; with all else as chosen, {WORDS[alone.kind]}: {alone.reason}"
    out = replace(out, answer=word, reason=reason, judgement=judgement, differs=differs)
    return _priced(out, other)


def _least(made: Synthesis, path: str, style: str) -> float | None:
    """A bound on the cost of all ops where a module has a style, as a share of that of the plan."""
    state, known = made.found.state, made.found.bound
    if state is None or known is None:
        return None
    within = replace(known.space.restriction, styles={path: style}, parameters=None)
    found = lower_bound(state, within)
    if found is None or not found.holds:
        return None
    return found.seconds / made.found.best.estimate.step_s


def _pinned(made: Synthesis, path: str, style: str) -> Synthesis:
    """The best plan with this style, other constraints for the module and for memory dropped."""
    constraints = made.asked.constraints
    others = tuple((p, s) for p, s in constraints.pins if p != path)
    bans = tuple((p, s) for p, s in constraints.bans if (p, s) != (path, style))
    free = replace(constraints, pins=others, bans=bans, memory_bytes=None)
    pinned = free.with_constraint("pin", f"{path}={style}")
    return synthesize(replace(made.asked, constraints=pinned), like=made.found.state)


def _refused(judge: Judge, module: Module, style: str, out: WhyNot, error: str) -> WhyNot:
    """No plan has the style: what the chosen one with it fails at."""
    made = judge.made
    state = made.found.state
    assert state is not None
    point = made.found.best.point.with_style(module.path, style)
    result = state.score(point, f"{module.path} -> {style}")
    if isinstance(result, Refusal):
        word = WORDS[result.kind]
        judgement = Judgement(result.kind, result.reason)
        reason = f"{word}: {result.reason}"
        return replace(out, answer=result.kind, reason=reason, judgement=judgement)
    return replace(out, answer="emitter", reason=error)


def _priced(answer: WhyNot, candidate: Candidate) -> WhyNot:
    return replace(
        answer,
        step_s=candidate.price.seconds,
        memory_bytes=candidate.memory_bytes,
        comm_bytes=candidate.estimate.comm_bytes,
    )


def _bare(
    judge: Judge, module: Module, style: str, tp: str, size: int
) -> tuple[Verdict | None, str]:
    """The verdict on the style without collectives, and a line about it."""
    if module.use == "embedding" and style != "vocab":
        return None, "an embedding is looked up by rows"
    if module.use == "other" and style == "row":
        style = "column"
    try:
        pair = literal(judge.made.found.program, module, style, tp, size)
    except LiteralError as error:
        return None, str(error)
    verdict = verify(
        Problem(pair.sequential, pair.distributed, pair.contract, consts=judge.consts or {})
    )
    match verdict:
        case Counterexample():
            return verdict, f"without the collectives around it, {shown(verdict)}"
        case Proof():
            return verdict, "proved: it needs no reduction"
        case Unknown():
            return verdict, f"undecided: {verdict.reason}"
