"""From what was traced to a verdict: the texts of all ranks as one program, contract, `verify`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent.check.consts import same_constants
from agent.check.contract import Placed, Statements, agree
from agent.errors import InputError
from verifier.contract import Contract
from verifier.domains.base import Array
from verifier.frontend.ranks import RanksCaptured
from verifier.ingest import Ingested, judged, read_ranks
from verifier.ir import source_note
from verifier.ir.errors import MalformedError
from verifier.ir.program import Program
from verifier.ir.types import NOWHERE, Source
from verifier.ranks import gathers_by_dim
from verifier.repair import Edit
from verifier.verdict import Counterexample, Trace, Unknown, Verdict

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Question:
    """Both programs and how they must correspond."""

    one: Program
    many: Program
    contract: Contract
    consts: Mapping[str, Array]


@dataclass(frozen=True)
class Checked:
    """What was found of a parallel module."""

    verdict: Verdict
    placed: tuple[Placed, ...]
    read: Ingested
    question: Question | None
    """None where no program stands for the ranks: some wait for ever, say."""


def check(captured: RanksCaptured, stated: Statements, tell: Tell) -> Checked:
    """Read the texts of all ranks, make the contract, and decide.

    Raises:
        InputError, CaptureError: layouts that are not clear or do not fit; values that only ranks
            have.
    """
    one = captured.one.program
    read = read_ranks(captured.texts, tell)
    for found in read.of_kind("malformed"):
        raise InputError(f"the ranks run no programs that fit together: {found.message}")
    program = read.program
    if program is None:
        verdict = judged(one, read, None, progress=tell)
        return Checked(_placed_in_source(verdict, captured.texts), (), read, None)
    program = _plain_gathers(_sourced(program, captured.texts))
    _same_outputs(one, program)
    one, program, consts = same_constants(captured, program)
    captured = replace(captured, one=replace(captured.one, program=one))
    contract, placed = agree(captured, program, stated)
    question = Question(one, program, contract, consts)
    verdict = judged(one, replace(read, program=program), contract, consts, tell)
    return Checked(_placed_in_source(verdict, captured.texts), placed, read, question)


def _sourced(program: Program, texts: Path) -> Program:
    """Nodes come from the user's code, not from a rank's text."""
    nodes = tuple(replace(n, source=in_source(n.source, texts)) for n in program.nodes)
    return replace(program, nodes=nodes)


def _plain_gathers(program: Program) -> Program:
    """Gathers along other dims than the first are one op, where all ranks do all of it."""
    if any(i.where for i in program.inputs) or any(n.where for n in program.nodes):
        return program
    return gathers_by_dim(program)


def _same_outputs(one: Program, many: Program) -> None:
    theirs = {(o.role, o.path) for o in many.outputs}
    for out in one.outputs:
        if (out.role, out.path) not in theirs:
            raise InputError(f"no rank gives the {out.role} {out.path}")


def _placed_in_source(verdict: Verdict, texts: Path) -> Verdict:
    """Places in the texts of ranks become places in the user's code."""
    match verdict:
        case Counterexample(location=place, witness=witness) if place is not None:
            found = in_source(place.source, texts)
            if isinstance(witness, Trace):
                steps = tuple(_reworded(step, texts) for step in witness.steps)
                witness = replace(witness, message=_reworded(witness.message, texts), steps=steps)
            place = replace(place, source=found, reason=_reworded(place.reason, texts))
            return replace(verdict, location=place, witness=witness)
        case Unknown(location=place, reason=reason) if place is not None:
            place = replace(place, source=in_source(place.source, texts))
            return replace(verdict, location=place, reason=_reworded(reason, texts))
        case _:
            return verdict


def in_source(place: Source, texts: Path) -> Source:
    """Where a line of a rank's text comes from; a place that is none of these stays."""
    path = texts / Path(place.file).name
    if not place.file.endswith(".sp") or not path.is_file():
        return place
    lines = path.read_text(encoding="utf-8").splitlines()
    if not 0 < place.line <= len(lines):
        return NOWHERE
    _, at, note = lines[place.line - 1].partition(" @ ")
    try:
        return source_note.read(f"@ {note}") if at else NOWHERE
    except MalformedError:
        return NOWHERE


def _reworded(text: str, texts: Path) -> str:
    """The same with `rank-00001.sp:12` as the line of the user's code."""
    out: list[str] = []
    for word in text.split(" "):
        name, _, line = word.rstrip(":").rpartition(":")
        if name.endswith(".sp") and line.isdigit():
            found = in_source(Source(name, int(line)), texts)
            word = f"{found}:" if word.endswith(":") else str(found)
            word = "" if found == NOWHERE else word
        out.append(word)
    return " ".join(w for w in out if w)


def mended(question: Question, seconds: float) -> tuple[Edit, ...]:
    """The fewest edits of what the ranks run after which it is proved; or none."""
    from verifier.repair.search import Repaired, repair

    found = repair(
        question.one, question.many, question.contract, seconds=seconds, consts=question.consts
    )
    return found.edits if isinstance(found, Repaired) else ()
