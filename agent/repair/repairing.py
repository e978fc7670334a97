"""`repair`: the fewest edits after which a distributed program is proved, as a diff of its file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from shardproof.agent.llm.answers import exit_of
from shardproof.agent.repair import Fixed, Level, NotFixed, Question, Settings, fix
from shardproof.agent.repair.sources import Suggestion, suggestion, unified
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.verdict.verdicts import message
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.repair.edits import Edit, node_of
from shardproof.synthesis.repair.frame import own_part
from shardproof.synthesis.repair.textual import rewritten
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import Stated, compose, load_contract
from shardproof.verifier.text.files import load
from shardproof.verifier.text.parser import parse_text, to_text
from shardproof.verifier.verdict import Proof

if TYPE_CHECKING:
    from shardproof.agent.actions.programs import Repair, Repairing


def level_of(feedback: str) -> Level:
    """Raises InputError: no such level."""
    try:
        return Level(feedback)
    except ValueError:
        raise InputError(
            "no such level of feedback",
            where="--feedback",
            expected=", ".join(level.value for level in Level),
            got=feedback,
        ) from None


def command(run: Run, asked: Repair) -> Outcome:
    """Repair the program in one file so that it computes another under a contract.

    Raises:
        IRError, ContractError: files that cannot be read, or that do not fit.
        InputError: an option or a model configuration that cannot be used.
    """
    level_of(asked.feedback)
    with run.phase("load"):
        one, own = load(asked.sequential), load(asked.distributed)
        stated = load_contract(asked.contract, one, own)
        many, contract = compose(own, stated)
        text = asked.contract.read_text(encoding="utf-8-sig")
        question = Question(one, many, contract, text, max_edits=asked.max_edits)
    ended = searched(run, question, asked)
    if isinstance(ended, NotFixed):
        return _not_fixed(run, ended, asked)
    return _fixed(run, ended, asked.distributed, own, many, stated, one)


def searched(run: Run, question: Question, asked: Repairing) -> Fixed | NotFixed:
    """The loop of repair, in a phase of its own.

    Raises:
        InputError: an option or a model configuration that cannot be used.
    """
    level, model = level_of(asked.feedback), asked.asker(run)
    search = asked.seconds * (0.4 if model is None else 0.3)
    settings = Settings(asked.rounds, asked.seconds, search, level)
    if model is not None:
        model.ends = time.monotonic() + asked.seconds
    try:
        with run.phase("repair") as phase:
            ended = fix(question, settings, model, run.emit)
            tried = sum(n for (_, what), n in ended.tally.items() if what == "tried")
            phase.facts.update({"tried": tried, "seconds": round(ended.seconds, 3)})
            phase.facts["rounds"] = ended.rounds
            phase.summary = f"{ended.rounds} rounds, {tried} edits tried"
            if model is not None:
                phase.summary += f"; the model: {model.spent.words()}"
    finally:
        if model is not None:
            model.close()
    return ended


def _not_fixed(run: Run, ended: NotFixed, asked: Repair) -> Outcome:
    lines = [f"not repaired: {ended.reason}"]
    if ended.best.edits:
        lines.append(f"nearest ({ended.best.held}): {ended.best}")
    lines.append(f"still wrong: {message(ended.best.verdict)}")
    if asked.llm == "none":
        lines.append("a language model may know more: --llm auto")
    run.emit(events.VerdictReached(verdict="unknown", message="\n".join(lines)))
    code = Exit.NOT_PROVED if ended.answer is None else exit_of(ended.answer)
    return Outcome(code, "unknown", answer="\n".join(lines))


def _fixed(
    run: Run, ended: Fixed, path: Path, own: Program, many: Program, stated: Stated, one: Program
) -> Outcome:
    edits = ended.found.edits
    lines = [told(many, edit) for edit in edits] or ["nothing to repair"]
    changed = patch(path, own, many, ended.found.program, stated, one) if edits else ""
    suggested = [s for e in edits if (s := suggestion(many, e, path.parent)) is not None]
    run.emit(
        events.Repaired(
            edits=[str(e) for e in edits],
            sources=[s for e in edits if (s := source(many, e))],
            diff=changed,
        )
    )
    run.emit(events.VerdictReached(verdict="proved", message="; ".join(lines)))
    shown = [*lines, *([changed] if changed else []), *map(_shown, suggested)]
    return Outcome(Exit.PROVED, "proved", answer="\n".join(shown))


def _shown(found: Suggestion) -> str:
    head = f"in the source, not proved by itself: {found.place}: {found.says}"
    return f"{head}\n{found.diff}" if found.diff else head


def patch(
    path: Path, own: Program, many: Program, repaired: Program, stated: Stated, one: Program
) -> str:
    """A unified diff of the file, or of the program printed where it is not its text that changes.

    What the file would say after it is read and proved once more, as a whole.
    """
    mine = own_part(own, many, repaired)
    text = path.read_bytes().decode("utf-8-sig")
    after = rewritten(text, own, mine) if mine is not None else None
    if after is not None and _proved(one, after, stated):
        return unified(text, after, str(path))
    if mine is not None and _proved(one, to_text(mine), stated):
        return diff(own, mine, f"{path} (printed)")
    return diff(many, repaired, f"{path} (with its contract)")


def _proved(one: Program, text: str, stated: Stated) -> bool:
    many, contract = compose(parse_text(text), stated)
    return isinstance(verify(Problem(one, many, contract)), Proof)


def diff(before: Program, after: Program, name: str) -> str:
    """A unified diff of two programs as they are printed."""
    return unified(to_text(before), to_text(after), name)


def told(program: Program, edit: Edit) -> str:
    """An edit in words, with the source line of the op that it is about."""
    place = source(program, edit)
    return f"{edit}  {place}".rstrip()


def source(program: Program, edit: Edit) -> str:
    """`file:line  module  the line itself` of the op that an edit is about, where it is known."""
    node = node_of(program, edit)
    if node is None or not node.source.file:
        return ""
    text = f"  | {node.source.text}" if node.source.text else ""
    return f"{node.source}{text}"
