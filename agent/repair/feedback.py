"""How much of a verdict a model is told. Each level says what those before it say, and more."""

import json
from collections.abc import Sequence
from enum import StrEnum

from shardproof.agent.verdict.verdicts import located, message
from shardproof.synthesis.repair.edits import KINDS, Edit
from shardproof.synthesis.repair.question import Candidate
from shardproof.verifier.text.printing import show_attr
from shardproof.verifier.verdict import Counterexample, Trace, Unknown, Verdict

SHOWN = 8
"""Values that an edit made right and that are named."""


class Level(StrEnum):
    NONE = "none"
    """That it is wrong."""
    MESSAGE = "message"
    """Which outputs are wrong, or which check of a run fails."""
    RELATION = "relation"
    """The first op whose relation breaks, with its source line, expected and found."""
    WITNESS = "witness"
    """A replayed witness: rank, index, both values."""
    FIXES = "fixes"
    """Edits that the relations suggest."""

    @property
    def rank(self) -> int:
        return list(Level).index(self)


def told(level: Level, verdict: Verdict, suggested: Sequence[Edit] = ()) -> str:
    """What is said of a verdict at a level."""
    if level is Level.NONE:
        return "The program is not proved."
    lines = [_headline(verdict)]
    location = getattr(verdict, "location", None)
    if level.rank >= Level.RELATION.rank and location is not None:
        source = "  ".join(p for p in (str(location.source), location.source.text) if p)
        lines += ["first broken relation:", *located(location)]
        lines += [f"at {source}"] if source else []
    if level.rank >= Level.WITNESS.rank and isinstance(verdict, Counterexample):
        lines += ["witness:", message(_alone(verdict))]
    if level.rank >= Level.FIXES.rank and suggested:
        lines += ["edits that the relations suggest, none of them judged:"]
        lines += [row(edit) for edit in suggested]
    return "\n".join(lines)


def credit(level: Level, before: Candidate, after: Candidate) -> str:
    """What edits made right, and what is wrong after them, as far as a level tells it."""
    if level is Level.NONE:
        return "not proved"
    wrong = _headline(after.verdict)
    outputs = sorted(after.held.outputs - before.held.outputs)
    right = [f"right after it: {', '.join(outputs)}"] if outputs else []
    if level.rank < Level.RELATION.rank:
        return "; ".join([*right, wrong])
    values = [f"%{name}" for name in sorted(after.held.values - before.held.values)]
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    if values:
        right.append(f"the ranks then have the pieces of {', '.join(values[:SHOWN])}{more}")
    location = getattr(after.verdict, "location", None)
    at = [f"at {' '.join(located(location)[:2])}"] if location is not None else []
    return "; ".join([*(right or ["nothing more is right after it"]), wrong, *at])


def _headline(verdict: Verdict) -> str:
    match verdict:
        case Counterexample(witness=w) if isinstance(w, Trace):
            return f"refuted: {w.check}"
        case Counterexample(wrong_outputs=wrong):
            return f"refuted: wrong outputs: {', '.join(wrong)}"
        case Unknown():
            return f"not proved: {verdict.reason}"
        case _:
            return "proved"


def _alone(verdict: Counterexample) -> Counterexample:
    """The witness without the relation and the fixes."""
    return Counterexample(verdict.mesh, verdict.witness)


def row(edit: Edit) -> str:
    """An edit as a reply writes it."""
    value = "/".join((*edit.scope, edit.value))
    where = ", ".join(f"{name}={list(coords)}" for name, coords in edit.where)
    attrs = ", ".join(f"{k}={show_attr(v)}" for k, v in edit.attrs)
    return json.dumps(
        {
            "edit": edit.kind,
            "value": value,
            "op": edit.op if "op" in KINDS[edit.kind].fields else "",
            "attrs": attrs,
            "operands": list(edit.operands),
            "index": edit.index,
            "uses": list(edit.uses),
            "where": where,
        }
    )
