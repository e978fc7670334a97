"""`/plan` and what belongs to it: candidates, wishes, why not."""

from __future__ import annotations

from agent import events
from agent.chat import planning
from agent.chat.engine import Session
from agent.chat.registry import Words, command
from agent.chat.state import Planned
from agent.errors import Exit
from agent.run import Outcome

GROUP = "planning"


@command(group=GROUP, examples=("/plan",))
def plan(session: Session, words: Words) -> Outcome:
    """Search for a plan that keeps every wish; it is proved by /verify.

    Tactics seed the search, a cost model over the described cluster compares. No language model
    takes part.
    """
    from agent import summary
    from synthesis.plan import table, to_json

    session.desk.model()
    with session.run.phase("plan") as phase:
        made = planning.search(session)
        phase.summary = (
            f"{len(made.plan.modules)} modules planned, {made.found.scored} candidates priced"
        )
        phase.facts["candidates"] = made.found.scored
    strategy = summary.strategy(made.plan)
    of = session.desk.planned_of()
    kept = session.artifacts.keep(to_json(made.plan))
    session.desk.put("made", of, made)
    judged = session.state.judged
    session.change(
        planned=Planned(plan=kept, strategy=strategy, of=of),
        subject="model",
        judged=judged if judged is not None and judged.of == of else None,
    )
    session.run.emit(
        events.PlanChosen(
            mesh=dict(made.plan.mesh.dims), strategy=strategy, estimates=dict(made.plan.estimates)
        )
    )
    rows = [(path, style, placed) for path, _, style, placed, _ in table(made.plan)]
    wide = max((len(path) for path, _, _ in rows), default=0)
    lines = [f"{path:<{wide}}  {style:<16} {placed}".rstrip() for path, style, placed in rows]
    lines += planning.wished(session)
    lines.append(planning.estimated(made.plan))
    session.say("\n".join(lines))
    return Outcome(Exit.PROVED)


@command("[N]", group=GROUP, examples=("/candidates", "/candidates 20"))
def candidates(session: Session, words: Words) -> Outcome:
    """List the best candidates of the search with their price, and the tactics that failed."""
    made = session.desk.made()
    most = int(words.words[0]) if words.words and words.words[0].isdecimal() else 8
    best = made.found.best
    lines = [f"  chosen  {planning.priced(best, best)}"]
    lines += [
        f"{n:>8}  {planning.priced(c, best)}" for n, c in enumerate(made.found.others[:most], 1)
    ]
    lines += [f"  failed  {name}: {why}" for name, why in made.found.failed.items()]
    for idea in session.state.ideas:
        lines.append(f"    idea  {idea.name}: {idea.tactic}, {idea.told}")
    return session.say("\n".join(lines))
