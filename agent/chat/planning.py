"""The search of a session: its model, mesh, cluster and constraints."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardproof.agent.actions.models import Constrained
from shardproof.agent.chat.state import Constraint, Settings
from shardproof.agent.cli import project
from shardproof.agent.llm.endpoint import PROJECT_FILE
from shardproof.agent.run import events
from shardproof.agent.run.errors import InputError
from shardproof.verifier.kernel.program.types import Mesh

if TYPE_CHECKING:
    from shardproof.agent.chat.engine import Session
    from shardproof.synthesis.planner.assign import Point
    from shardproof.synthesis.planner.constraints import Constraints
    from shardproof.synthesis.planner.judging import Considered, Judge
    from shardproof.synthesis.planner.plan import Plan
    from shardproof.synthesis.planner.planner import Asked, Synthesis
    from shardproof.synthesis.planner.scoring import Search


SIZED = ("gpus", "seq", "global_batch", "dtype", "fix")
"""Parameters of `parallelize` with which a mesh is chosen or priced."""


def mesh(session: Session) -> Mesh:
    """The mesh that was chosen.

    Raises:
        InputError: none was.
    """
    dims = session.state.mesh
    if not dims:
        raise InputError("no mesh", hint="/mesh tp=2, or /mesh dp=2,tp=2")
    return Mesh(tuple(dims.items()))


def constraints(session: Session) -> Constraints:
    """What the owner asked for.

    Raises:
        ConstraintError: a constraint that cannot be read.
    """
    return Constrained(**constraint_options(session)).constraints()


def constraint_options(session: Session) -> dict[str, Any]:
    """The same, as parameters of an action."""
    found: dict[str, list[str]] = {"pin": [], "ban": [], "constrain": []}
    memory: str | None = None
    for constraint in session.state.constraints:
        name, _, size = constraint.words.partition("=")
        if constraint.kind == "constrain" and name == "memory" and memory is None:
            memory = size
        else:
            found[constraint.kind].append(constraint.words)
    return {**found, "memory": memory}


def take_defaults(session: Session, *, first: bool) -> None:
    """Take over what the project's file says of plans, where the session does not say it: the
    constraints, the mesh where there is none, for the first model the hardware.

    Raises:
        InputError, ConstraintError: a file or a value that cannot be used.
    """
    path = session.root / PROJECT_FILE
    table = project.planning(path)
    if not table:
        return
    session.file(path.name, path.read_text(encoding="utf-8"))
    given = [Constraint(kind=kind, words=words) for kind, words in project.constrained(table)]
    session.change(constraints=session.state.constraints or given)
    lines = constrained(session)
    if first and "hardware" in table and session.state.settings.hardware == Settings().hardware:
        lines.append(f"hardware: {_hardware(session, table['hardware'])}")
    if not session.state.mesh and {"mesh", "gpus"} & set(table):
        lines.append(f"mesh: {_mesh(session, table)}")
    session.say("\n".join([f"from {path.name}:", *lines]))


def _hardware(session: Session, name: str) -> str:
    from shardproof.synthesis import hardware

    hardware.load(name)
    session.change(settings=session.state.settings.model_copy(update={"hardware": name}))
    return name


def _mesh(session: Session, table: dict[str, Any]) -> Mesh:
    from shardproof.agent.actions.words import read_mesh
    from shardproof.synthesis.planner.search import axes

    gpus = table.get("gpus")
    found = chosen(session, gpus=gpus) if gpus else read_mesh(table["mesh"])
    axes(found)
    session.change(mesh=dict(found.dims))
    return found


def asked(session: Session, where: Mesh | None = None) -> Asked:
    """What a plan is asked for, on the mesh of the session or another. Raises InputError."""
    from shardproof.agent.pipeline import pipeline
    from shardproof.agent.training import strategy
    from shardproof.synthesis import hardware
    from shardproof.synthesis.planner.planner import Asked

    captured = session.workspace.captured()
    cluster = hardware.load(session.state.settings.hardware)
    kinds, split = pipeline.kinds(captured), session.workspace.splits_loss()
    at, constrained = where or mesh(session), constraints(session)
    priced = strategy.configured(session.workspace.asked(), captured, at, constrained.memory_bytes)
    return Asked(captured.program, at, cluster, kinds, split, constrained, priced)


def space(session: Session) -> Search:
    """The points that there are for the model on its mesh."""
    from shardproof.synthesis.planner.scoring import prepare

    return session.workspace.space(lambda: prepare(asked(session)))


def seeds(session: Session, names: list[str]) -> list[tuple[str, Point]]:
    """Ideas as starting points of the search."""
    from shardproof.synthesis.planner.assign import Point

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
        PlanError: a mesh that the model cannot use, or constraints that leave nothing.
    """
    from shardproof.synthesis.planner.planner import synthesize

    found = seeds(session, ideas) if ideas else ()
    return synthesize(asked(session), progress=session.run.note, seeds=found)


def constrained(session: Session) -> list[str]:
    """The constraints that the plan keeps, one line each."""
    return [f"keeps: {line}" for line in constraints(session).lines()]


def estimated(plan: Plan) -> str:
    """Time, communication and memory, as the cost model has them."""
    from shardproof.agent.report import text
    from shardproof.synthesis.optimum.linear import within

    found = plan.estimates
    bounded = f", {within(found['cost_gap'])}" if "cost_gap" in found else ""
    return (
        f"estimated step {text.duration(found['step_s'])}{bounded}, "
        f"{text.size(found['comm_bytes'])} sent per rank, memory "
        f"{text.size(found['memory_bytes_before'])} -> {text.size(found['memory_bytes_after'])}"
    )


def chosen(session: Session, **more: Any) -> Mesh:
    """The mesh of the fastest configuration that a patch can do, of those that divide the batch and
    keep the limit of memory; says what was chosen from. `more` are parameters of `parallelize`.

    Raises:
        InputError: none does.
    """
    from shardproof.agent.training import choosing, strategy
    from shardproof.synthesis.strategy import choice

    captured = session.workspace.captured()
    asked = session.workspace.asked("/mesh", **more)
    gpus = asked.gpus or 1
    shape, _ = choosing.shape_in(session.run, session.workspace.request(), captured)
    plans, said = choosing.chosen_in(session.run, shape, asked, gpus)
    rows = [i.shape[0] for i in captured.facts.inputs if i.shape]
    found = (p for p in choice.patches(plans.space) if all(n % p.plan.dp == 0 for n in rows))
    taken = next(found, None)
    if taken is None:
        raise InputError(
            f"no mesh of {gpus} devices divides the inputs as they were loaded",
            where="/mesh --gpus",
            got=", ".join(f"{i.name} {list(i.shape)}" for i in captured.facts.inputs),
            hint=f"/load it with --batch {gpus}",
        )
    session.say("\n".join(strategy.lines(replace(plans, emitted=taken), said)))
    return choosing.mesh_of(taken)


def priced(session: Session, where: Mesh) -> events.PlanJudged:
    """The best plan on a mesh, by price; nothing of the session changes.

    Raises:
        PlanError: a mesh that the model cannot use, or constraints that leave nothing on it.
    """
    from shardproof.synthesis.planner.planner import synthesize

    best = synthesize(asked(session, where), progress=session.run.note).found.best
    return events.PlanJudged(
        name=",".join(f"{name}={size}" for name, size in where.dims),
        status="priced",
        step_s=best.price.seconds,
        memory_bytes=best.memory_bytes,
        comm_bytes=best.estimate.comm_bytes,
    )


def judge(session: Session, made: Synthesis) -> Judge:
    """What verifies, writes and weighs the candidates of the search."""
    from shardproof.synthesis.planner.judging import Judge

    return Judge(made, session.workspace.captured().consts, session.workspace.facts())


def considered(row: Considered) -> str:
    """A candidate in a line, and what it does otherwise than the plan."""
    from shardproof.agent.report import text

    head = "chosen" if row.chosen else row.judgement.status
    cost = f"{text.duration(row.step_s)}, {text.size(row.memory_bytes)}" if row.step_s else ""
    line = "  ".join(part for part in (f"{head:<9}", row.name, cost, row.why) if part)
    more = f"\n{'':11}otherwise: {', '.join(row.differs)}" if row.differs else ""
    return line + more
