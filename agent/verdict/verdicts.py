"""Verdicts as the command line shows them: a word, a line, a place, an exit code."""

from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.run import Outcome, Run
from shardproof.verifier.verdict import (
    Counterexample,
    Location,
    Proof,
    Relation,
    Trace,
    Unknown,
    Verdict,
    Witness,
)

WIDE = 240
"""Characters of an op that are shown: a repeated block has dozens of operands."""


def word(verdict: Verdict) -> events.DecidedWord:
    match verdict:
        case Proof():
            return "proved"
        case Counterexample():
            return "refuted"
        case Unknown():
            return "unknown"


def exit_of(verdict: Verdict) -> Exit:
    return Exit.PROVED if isinstance(verdict, Proof) else Exit.NOT_PROVED


def message(verdict: Verdict) -> str:
    """What was found, for a person; several lines where there is more to say."""
    match verdict:
        case Proof(scope=scope, engine=engine):
            return "; ".join([*scope, f"engine: {engine}"] if engine else scope)
        case Counterexample(witness=w) if isinstance(w, Trace):
            lines = [f"{w.check}: {w.message}", *(f"  {step}" for step in w.steps)]
        case Counterexample(witness=w):
            assert isinstance(w, Witness)
            rank = ", ".join(f"{name}={at}" for name, at in w.rank.items())
            index = ", ".join(map(str, w.index))
            lines = [
                f"{w.output}[{index}] on rank {rank or '0'}: got {w.got:.6g}, "
                f"one device gives {w.expected:.6g} (mesh {verdict.mesh})",
                *([w.sizes] if w.sizes else []),
                *([f"smallest: {verdict.smaller}"] if verdict.smaller else []),
            ]
        case Unknown():
            lines = [verdict.reason]
            if verdict.open_outputs:
                lines.append("open: " + ", ".join(verdict.open_outputs[:6]))
    if verdict.location is not None:
        lines += located(verdict.location)
    if verdict.fixes:
        lines.append("verified fixes: " + "   |   ".join(verdict.fixes))
    return "\n".join(lines)


def located(location: Location) -> list[str]:
    """The first op without the relation that is asked for, and what its operands are."""
    operands = [f"  {operand}" for operand in location.operands]
    text = location.text or location.op
    return [text if len(text) <= WIDE else text[: WIDE - 4] + " ...", location.reason, *operands]


def shown(relation: Relation) -> str:
    """`%y = mm: %h as [2@tp, 4]   model.py:14`, for one value."""
    found = "; ".join(relation.found) or "no relation"
    return "   ".join(
        p for p in (f"%{relation.value} ({relation.op}): {found}", str(relation.source)) if p
    )


def place(verdict: Verdict) -> str:
    """`file:line  module  text` of the first op whose relation breaks."""
    if isinstance(verdict, Proof) or verdict.location is None:
        return ""
    source = verdict.location.source
    return "   ".join(part for part in (str(source), source.text) if part)


def report(run: Run, verdict: Verdict, said: str = "", patch: str = "") -> Outcome:
    """Emit the verdict, with what else is to be said of it, and end with its exit code."""
    run.emit(
        events.VerdictReached(
            verdict=word(verdict),
            message="\n".join([message(verdict), said] if said else [message(verdict)]),
            where=place(verdict),
            scope=list(verdict.scope) if isinstance(verdict, Proof) else [],
            assumptions=list(verdict.assumptions) if isinstance(verdict, Proof) else [],
            relations=[shown(relation) for relation in verdict.relations],
            patch=patch,
        )
    )
    return Outcome(exit_of(verdict), word(verdict), answer=word(verdict))
