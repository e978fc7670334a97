"""The search of a session: its model, mesh, cluster and wishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import InputError
from verifier.kernel.program.types import Mesh

if TYPE_CHECKING:
    from agent.chat.engine import Session
    from synthesis.assign import Point
    from synthesis.constraints import Wishes
    from synthesis.judging import Considered, Judge
    from synthesis.plan import Plan
    from synthesis.planner import Asked, Synthesis
    from synthesis.scoring import Search


def mesh(session: Session) -> Mesh:
    """The mesh that was chosen.

    Raises:
        InputError: none was.
    """
    dims = session.state.mesh
    if not dims:
        raise InputError("no mesh", hint="/mesh tp=2, or /mesh dp=2,tp=2")
    return Mesh(tuple(dims.items()))


def wishes(session: Session) -> Wishes:
    """What the owner asked for.

    Raises:
        WishError: a wish that cannot be read.
    """
    from synthesis.constraints import NO_WISHES

    found = NO_WISHES
    for wish in session.state.wishes:
        found = found.with_wish(wish.kind, wish.words)
    return found


def asked(session: Session) -> Asked:
    """What a plan is asked for. Raises InputError, WishError."""
    from agent import pipeline
    from synthesis import hardware
    from synthesis.planner import Asked

    captured = session.desk.captured()
    cluster = hardware.load(session.state.settings.hardware)
    kinds, split = pipeline.kinds(captured), session.desk.splits_loss()
    return Asked(captured.program, mesh(session), cluster, kinds, split, wishes(session))


def space(session: Session) -> Search:
    """The points that there are for the model on its mesh."""
    from synthesis.scoring import prepare

    return prepare(asked(session))


def seeds(session: Session, names: list[str]) -> list[tuple[str, Point]]:
    """Ideas as starting points of the search."""
    from synthesis.assign import Point

    modules = [m.path for m in space(session).modules]
    found: list[tuple[str, Point]] = []
    for idea in session.state.ideas:
        if idea.name in names:
            styles = tuple((p, idea.styles.get(p, "replicate")) for p in modules)
            found.append((idea.name, Point(styles, idea.stream)))
    return found


def search(session: Session, ideas: list[str]) -> Synthesis:
    """Search for a plan; deterministic, so the same state comes to the same plan.

    Raises:
        PlanError: a mesh that the model cannot use, or wishes that leave nothing.
    """
    from synthesis.planner import synthesize

    found = seeds(session, ideas) if ideas else ()
    return synthesize(asked(session), progress=session.run.note, seeds=found)


def wished(session: Session) -> list[str]:
    """The wishes that the plan keeps, one line each."""
    return [f"keeps: {line}" for line in wishes(session).lines()]


def estimated(plan: Plan) -> str:
    """Time, communication and memory, as the cost model has them."""
    from agent.report import text
    from synthesis.optimum.linear import within

    found = plan.estimates
    least = found.get("bound_s")
    bounded = f", {within(found['step_s'], least)}" if least else ""
    return (
        f"estimated step {text.duration(found['step_s'])}{bounded}, "
        f"{text.size(found['comm_bytes'])} sent per rank, memory "
        f"{text.size(found['memory_bytes_before'])} -> {text.size(found['memory_bytes_after'])}"
    )


def judge(session: Session, made: Synthesis) -> Judge:
    """What verifies, writes and weighs the candidates of the search."""
    from synthesis.judging import Judge

    return Judge(made, session.desk.captured().consts, session.desk.facts())


def considered(row: Considered) -> str:
    """A candidate in a line, and what it does otherwise than the plan."""
    from agent.report import text

    head = "chosen" if row.chosen else row.judgement.status
    cost = f"{text.duration(row.step_s)}, {text.size(row.memory_bytes)}" if row.step_s else ""
    line = "  ".join(part for part in (f"{head:<9}", row.name, cost, row.why) if part)
    more = f"\n{'':11}otherwise: {', '.join(row.differs)}" if row.differs else ""
    return line + more
