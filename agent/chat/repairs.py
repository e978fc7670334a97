"""`/repair`: the search for the fewest edits, and a model where it finds none. All is proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardproof.agent import repair as loop
from shardproof.agent.actions.programs import Repairing
from shardproof.agent.chat.state import Judged
from shardproof.agent.chat.workspace import Pair
from shardproof.agent.repair import repairing
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.run import Outcome
from shardproof.synthesis.repair.frame import own_part
from shardproof.synthesis.repair.textual import rewritten
from shardproof.verifier.text.parser import to_text

if TYPE_CHECKING:
    from shardproof.agent.chat.engine import Session
    from shardproof.agent.chat.registry import Words

SHARE = 0.4
"""Of the seconds, for one search: what is left is for a fresh start."""


def fix(session: Session, words: Words) -> Outcome:
    """Repair what was loaded, or the program of the ranks that the plan stands for."""
    pair, settings = session.workspace.pair(), session.state.settings
    own = {"max_edits": settings.repair_edits, "seconds": settings.repair_seconds}
    asked = Repairing.of("/repair", {**own, **words.given(Repairing)})
    question = loop.Question(
        pair.sequential,
        pair.distributed,
        pair.contract,
        _stated(session),
        pair.consts,
        asked.max_edits,
    )
    model = session.asker if words.has("model") else None
    with session.run.phase("repair") as phase:
        share = SHARE * asked.seconds
        level = repairing.level_of(asked.feedback)
        bounds = loop.Settings(asked.rounds, asked.seconds, share, level)
        found = loop.fix(question, bounds, model, session.run.emit)
        phase.summary = f"{found.rounds} round{'s' * (found.rounds != 1)}"
    if isinstance(found, loop.Fixed):
        return _repaired(session, pair, found)
    message = f"not repaired: {found.reason}"
    if found.best.edits:
        message += f"; nearest: {found.best}"
    session.run.emit(events.VerdictReached(verdict="unknown", message=message))
    return Outcome(Exit.NOT_PROVED)


def _stated(session: Session) -> str:
    """The contract as text, for a model to read."""
    source = session.state.programs.contract
    if session.state.subject != "programs" or source is None:
        return ""
    return session.artifacts.text(source.sha256)


def _repaired(session: Session, pair: Pair, found: loop.Fixed) -> Outcome:
    edits = found.found.edits
    if not edits:
        session.say("nothing to repair: it is proved as it is")
        return Outcome(Exit.PROVED, "proved")
    lines = [repairing.told(pair.distributed, edit) for edit in edits]
    source = session.state.programs.distributed if session.state.subject == "programs" else None
    name = source.path if source else "distributed"
    changed = repairing.diff(pair.distributed, found.found.program, name)
    session.run.emit(
        events.Repaired(
            edits=[str(e) for e in edits],
            sources=[s for e in edits if (s := repairing.source(pair.distributed, e))],
            diff=changed,
        )
    )
    note = _kept(session, pair, found)
    session.run.emit(events.VerdictReached(verdict="proved", message="; ".join(lines)))
    message = "after the repair: " + "; ".join(map(str, edits))
    session.change(judged=Judged(verdict="proved", of=f"repaired {pair.of}", message=message))
    shown = [] if session.state.programs.repaired and source else [changed]
    session.say("\n".join([*shown, note]))
    return Outcome(Exit.PROVED, "proved")


def _kept(session: Session, pair: Pair, found: loop.Fixed) -> str:
    """Keep the repaired program as its file would be; say what comes next."""
    programs = session.state.programs
    source = programs.distributed
    if session.state.subject != "programs" or source is None or pair.written is None:
        return "the plan is what /plan chose; this repair is of its program alone"
    text = session.artifacts.text(source.sha256)
    own = own_part(pair.written, pair.distributed, found.found.program)
    if own is None:
        return "the edits cannot be written into the file: they reach what the contract adds"
    kept = session.artifacts.keep(rewritten(text, pair.written, own) or to_text(own))
    session.change(programs=programs.model_copy(update={"repaired": kept}))
    return f"next: /diff shows it in {source.path}, /apply writes it"
