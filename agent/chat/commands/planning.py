"""`/plan` and what belongs to it: candidates, constraints, why not."""

from typing import Literal

from shardproof.agent.actions.models import Candidates, Parallelize, WhyNot
from shardproof.agent.chat import planning
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.registry import Words, command
from shardproof.agent.chat.state import Constraint, Planned
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.events import PlanJudged
from shardproof.agent.run.run import Outcome

GROUP = "planning"
STYLES = "MODULE STYLE, for example up row"


@command(group=GROUP, effect="reads", examples=("/plan",))
def plan(session: Session, words: Words) -> Outcome:
    """Search for a plan under the given constraints; /verify proves it.

    Tactics seed the search, and ideas of the model that were proved; a cost model over the
    described cluster compares.
    """
    from shardproof.agent.pipeline import pipeline
    from shardproof.agent.report import summary
    from shardproof.synthesis.planner.plan import table, to_json

    session.workspace.model()
    ideas = [idea.name for idea in session.state.ideas if idea.verdict == "proved"]
    with session.run.phase("plan") as phase:
        made = planning.search(session, ideas)
        pipeline.priced(phase, made)
    strategy = summary.strategy(made.plan)
    of = session.workspace.planned_of()
    kept = session.artifacts.keep(to_json(made.plan))
    session.workspace.put("made", of, made)
    judged = session.state.judged
    session.change(
        planned=Planned(plan=kept, strategy=strategy, ideas=ideas, of=of),
        subject="model",
        judged=judged if judged is not None and judged.of == of else None,
    )
    pipeline.chosen(session.run, made.plan)
    rows = [(path, style, placed) for path, _, style, placed, _ in table(made.plan)]
    wide = max((len(path) for path, _, _ in rows), default=0)
    lines = [f"{path:<{wide}}  {style:<16} {placed}".rstrip() for path, style, placed in rows]
    lines += planning.constrained(session)
    lines += [planning.estimated(made.plan), "next: /verify"]
    session.say("\n".join(lines))
    return Outcome(Exit.PROVED)


@command(
    "[NAME=SIZE,... ...]",
    group=GROUP,
    effect="reads",
    takes=(Parallelize, planning.SIZED),
    completes=("mesh",),
    examples=("/price", "/price tp=4 dp=2,tp=2", "/price --gpus 8"),
)
def price(session: Session, words: Words) -> Outcome:
    """Price the best plan on each of these meshes, fastest first; the session stays as it is.

    Without words: on the mesh of the session. --gpus N prices all training configurations of so
    many devices, with the options of /mesh.
    """
    from shardproof.agent.actions.words import read_mesh
    from shardproof.agent.report import text
    from shardproof.synthesis.planner.assign import PlanError

    if words.has("gpus"):
        planning.chosen(session, **words.given(Parallelize))
        return Outcome(Exit.PROVED)
    meshes = [read_mesh(w) for w in words.words] or [planning.mesh(session)]
    found: list[PlanJudged] = []
    lines: list[str] = []
    for mesh in meshes:
        try:
            found.append(planning.priced(session, mesh))
        except PlanError as error:
            lines.append(f"{mesh}: no plan: {error}")
    for row in sorted(found, key=lambda row: row.step_s or 0.0, reverse=True):
        session.run.emit(row)
        sent, held = text.size(row.comm_bytes), text.size(row.memory_bytes)
        step = text.duration(row.step_s)
        lines.insert(0, f"{row.name:<12} step {step}, {sent} sent per rank, {held} per rank")
    return session.say("\n".join(lines))


@command(
    "[N]",
    group=GROUP,
    effect="reads",
    takes=(Candidates, ("count",)),
    examples=("/candidates", "/candidates 20"),
    most=1,
)
def candidates(session: Session, words: Words) -> Outcome:
    """List what the search found, each judged: proved, refuted, not to be written, too large.

    No candidate is judged by its price alone: every one of them is verified.
    """
    from shardproof.agent.pipeline.considering import considered
    from shardproof.synthesis.planner.judging import candidates as judged

    asked = (*words.words, words.one("count") or str(Candidates.model_fields["count"].default))[0]
    if not (asked.isdecimal() and asked.isascii()) or int(asked[:9]) < 1:
        raise InputError(
            "no such count", where="/candidates", expected="a number from 1", got=asked
        )
    made, most = session.workspace.made(), int(asked[:9])
    with session.run.phase("judge") as phase:
        rows = judged(planning.judge(session, made), most)
        phase.summary = f"{len(rows)} candidates"
    for row in rows:
        session.run.emit(considered(row))
    lines = [planning.considered(row) for row in rows]
    lines += [f"idea      {idea.name}: {idea.tactic}, {idea.told}" for idea in session.state.ideas]
    return session.say("\n".join(lines))


@command(
    "MODULE STYLE",
    group=GROUP,
    effect="reads",
    takes=(WhyNot, ("bare",)),
    completes=("module", "style"),
    examples=("/why-not up row", "/why-not down replicate", "/why-not --bare up row"),
)
def why_not(session: Session, words: Words) -> Outcome:
    """Say why a module does not have a style, by planning with it and judging what comes out.

    A style that does not fit runs on local tensors, and is refuted with numbers.
    With --bare that is done in every case.
    """
    from shardproof.agent.pipeline.considering import tried
    from shardproof.synthesis.planner.why import why_not as answer

    if len(words.words) != 2:
        raise InputError("which module, and which style?", where="/why-not", expected=STYLES)
    made = session.workspace.made()
    with session.run.phase("try") as phase:
        judge = planning.judge(session, made)
        found = answer(judge, words.words[0], words.words[1], bare=words.has("bare"))
        phase.summary = found.answer
    session.run.emit(tried(found))
    return session.say("\n".join(found.lines()))


@command(
    "[MODULE STYLE]",
    group=GROUP,
    effect="changes",
    options={"drop": True},
    completes=("module", "style"),
    examples=("/pin", "/pin up column", "/pin transformer.h.*.mlp.c_fc=column", "/pin --drop up"),
)
def pin(session: Session, words: Words) -> Outcome:
    """Give a module a style in every plan from now on; without words, list the constraints."""
    return _constraint(session, words, "pin")


@command(
    "[MODULE STYLE | TACTIC]",
    group=GROUP,
    effect="changes",
    options={"drop": True},
    completes=("module", "style"),
    examples=("/ban down row", "/ban sequence_parallel", "/ban --drop down"),
)
def ban(session: Session, words: Words) -> Outcome:
    """Give no such style to a module, or do not start from a tactic."""
    return _constraint(session, words, "ban")


@command(
    "[memory=SIZE | sequence_parallel | no_sequence_parallel | no_loss_parallel]",
    group=GROUP,
    effect="changes",
    options={"drop": True},
    completes=("value",),
    examples=("/constrain memory=80GB", "/constrain no_loss_parallel", "/constrain --drop memory"),
)
def constrain(session: Session, words: Words) -> Outcome:
    """Limit every plan: memory per rank, the residual stream, the loss."""
    return _constraint(session, words, "constrain")


def _constraint(
    session: Session, words: Words, kind: Literal["pin", "ban", "constrain"]
) -> Outcome:
    from shardproof.synthesis.planner.constraints import settle
    from shardproof.synthesis.planner.planner import can_emit

    constraints = list(session.state.constraints)
    if words.has("drop"):
        name = words.one("drop")
        left = [w for w in constraints if w.kind != kind or not _named(w, name)]
        if len(left) == len(constraints):
            raise InputError(f"no such {kind}", where=f"/{kind} --drop", got=name)
        constraints = left
    elif words.words:
        said = words.words[0] if len(words.words) == 1 else "=".join(words.words)
        constraint = Constraint(kind=kind, words=said)
        constraints = [w for w in constraints if w != constraint] + [constraint]
    else:
        lines = planning.constrained(session)
        return session.say("\n".join(lines) or "no constraints")
    session.change(constraints=constraints)
    asked = planning.constraints(session)
    if session.state.model is not None and session.state.mesh:
        space = planning.space(session)
        settle(asked, space.modules, space.mesh[space.tp] if space.tp else 1, can_emit)
    lines = planning.constrained(session)
    next_ = "next: /plan" if session.state.planned else ""
    return session.say("\n".join([*(lines or ["no constraints"]), *([next_] if next_ else [])]))


def _named(constraint: Constraint, name: str) -> bool:
    return name in (constraint.words, constraint.words.partition("=")[0])
