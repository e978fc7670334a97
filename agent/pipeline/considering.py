"""`shardproof candidates` and `shardproof why-not`: what else a plan could be, tried."""

from dataclasses import dataclass

from shardproof.agent.actions.models import Planned
from shardproof.agent.pipeline import pipeline
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.training import strategy
from shardproof.synthesis.emit import loss_obstacle
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.hardware import Cluster
from shardproof.synthesis.planner.constraints import NO_CONSTRAINTS, Constraints, show_bytes
from shardproof.synthesis.planner.judging import Considered, Judge, candidates
from shardproof.synthesis.planner.planner import Asked, synthesize
from shardproof.synthesis.planner.why import WhyNot, why_not
from shardproof.verifier.kernel.program.types import Mesh


@dataclass(frozen=True)
class Question:
    """The model, mesh and constraints that a question is about."""

    asked: Planned
    request: CaptureRequest
    mesh: Mesh
    cluster: Cluster
    constraints: Constraints = NO_CONSTRAINTS


def judge(run: Run, asked: Question) -> Judge:
    """Capture and plan, then judge what the search came by."""
    model = pipeline.model_in(run, asked.request)
    captured, facts = model.captured, model.facts
    with run.phase("plan") as phase:
        kinds, split = pipeline.kinds(captured), loss_obstacle(facts) is None
        limit = asked.constraints.memory_bytes
        priced = strategy.configured(asked.asked, captured, asked.mesh, limit)
        wanted = Asked(
            captured.program, asked.mesh, asked.cluster, kinds, split, asked.constraints, priced
        )
        made = synthesize(wanted, progress=run.note)
        pipeline.priced(phase, made)
    return Judge(made, captured.consts, facts)


def show_candidates(run: Run, asked: Question, count: int) -> Outcome:
    """The chosen plan, the next best, and those that are none, each judged."""
    judged = judge(run, asked)
    with run.phase("judge") as phase:
        rows = candidates(judged, count)
        phase.summary = f"{len(rows)} candidates judged"
    for row in rows:
        run.emit(considered(row))
    proved = rows[0].judgement.status == "proved"
    code = Exit.PROVED if proved else Exit.NOT_PROVED
    answer = "\n".join(line for row in rows for line in lines(row))
    return Outcome(code, "proved" if proved else "unknown", answer=answer)


def considered(row: Considered) -> events.PlanJudged:
    """A candidate as an event."""
    return _judged(row, row.name, status(row), row.why or row.judgement.reason)


def _judged(found: Considered | WhyNot, name: str, status: str, reason: str) -> events.PlanJudged:
    return events.PlanJudged(
        name=name,
        status=status,
        reason=reason,
        differs=list(found.differs),
        step_s=found.step_s,
        memory_bytes=found.memory_bytes,
        comm_bytes=found.comm_bytes,
    )


def status(row: Considered) -> str:
    return f"chosen, {row.judgement.status}" if row.chosen else row.judgement.status


def lines(row: Considered) -> list[str]:
    """A candidate for a person."""
    out = [f"{row.name}: {status(row)}"]
    if row.step_s is not None and row.memory_bytes is not None and row.comm_bytes is not None:
        out.append(
            f"  step {row.step_s * 1e3:.3f} ms, {show_bytes(row.memory_bytes)} per rank, "
            f"{show_bytes(row.comm_bytes)} communicated"
        )
    out += [f"  {row.why}"] if row.why else []
    out += [f"  {row.judgement.reason}"] if row.chosen and row.judgement.reason else []
    shown = row.differs[:6]
    more = len(row.differs) - len(shown)
    if shown:
        out.append("  differs: " + ", ".join(shown) + (f" and {more} more" if more else ""))
    return out


def show_why_not(run: Run, asked: Question, path: str, style: str, *, bare: bool) -> Outcome:
    """Try a style for a module, and say what came of it."""
    judged = judge(run, asked)
    with run.phase("try") as phase:
        found = why_not(judged, path, style, bare=bare)
        phase.summary = found.answer
    run.emit(tried(found))
    word: events.VerdictWord = "proved" if found.holds else "unknown"
    if found.answer == "refuted":
        word = "refuted"
    code = Exit.PROVED if found.holds else Exit.NOT_PROVED
    return Outcome(code, word, answer="\n".join(found.lines()))


def tried(found: WhyNot) -> events.PlanJudged:
    """What came of a style as an event."""
    why = "; ".join(filter(None, [found.reason, found.bare]))
    return _judged(found, f"{found.path} {found.style}", found.answer, why)
