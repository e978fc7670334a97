"""The role of a mender: structured edits of a refuted program of the ranks.

The one-device program and the contract are shown and stay as they are: a reply can name a value of
the distributed program and an edit of the vocabulary, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.llm import vocabulary
from agent.llm.client import Form, Model
from agent.llm.dialogue import Result, put
from agent.llm.hygiene import clean, one_line
from agent.llm.replies import Edit, Repair, ReplyError, read, schema
from agent.llm.source import bare, boundary, excerpt
from agent.verdicts import message
from prompts import render
from verifier.edits import EDITS, Change, apply_change
from verifier.ir.errors import IRError
from verifier.ir.program import Program
from verifier.ir.text import parse_attrs, to_text
from verifier.verdict import Counterexample, Unknown


@dataclass(frozen=True)
class Task:
    """A refuted program, and what is known about why."""

    distributed: Program
    verdict: Counterexample | Unknown
    contract: str
    """As text, for reading only."""
    refuted: tuple[tuple[str, str], ...] = ()
    """`str` of a `Repaired` that was tried, and why it is wrong."""
    most: int = 4
    budget: int = 40_000
    """Characters of program in the prompt."""


@dataclass(frozen=True)
class Repaired:
    """An edited program, not yet judged."""

    program: Program
    changes: tuple[Change, ...]
    diagnosis: str

    def __str__(self) -> str:
        return "; ".join(map(str, self.changes))


def repair(model: Model, task: Task) -> Result[Repaired]:
    """Ask for edits. The edited program has the inputs and outputs that it had."""
    form = Form("repair", schema(Repair, {"Edit.edit": list(EDITS)}))
    location = task.verdict.location
    focus = location.text.split(" = ")[0] if location else ""
    prompt = render(
        "repair",
        boundary=boundary(),
        mesh=", ".join(f"{name}={size}" for name, size in task.distributed.mesh.dims),
        edits=vocabulary.edits(),
        ops=vocabulary.insertable_ops(),
        contract=clean(task.contract).strip(),
        program=excerpt(clean(to_text(bare(task.distributed))).strip(), task.budget, focus),
        finding=excerpt(clean(message(task.verdict)), 6000),
        refuted=[{"edits": one_line(e), "why": one_line(w)} for e, w in task.refuted],
        most=task.most,
    )
    return put(model, prompt, form, lambda text: _read(task, text))


def _read(task: Task, text: str) -> Repaired:
    reply = read(Repair, text)
    if not reply.edits:
        raise ReplyError(["edits: empty"])
    if len(reply.edits) > task.most:
        raise ReplyError([f"edits: {len(reply.edits)}; at most {task.most}"])
    program = task.distributed
    changes: list[Change] = []
    for index, edit in enumerate(reply.edits):
        try:
            change = _change(edit)
            program = apply_change(program, change)
        except (IRError, RecursionError) as error:
            raise ReplyError([f"edits[{index}]: {one_line(str(error))}"]) from None
        changes.append(change)
    found = Repaired(program, tuple(changes), reply.diagnosis)
    if str(found) in {edits for edits, _ in task.refuted}:
        raise ReplyError(["edits: these were tried before, and are wrong"])
    return found


def _change(edit: Edit) -> Change:
    return Change(
        edit.edit,
        edit.value.strip().removeprefix("%"),
        edit.op.strip(),
        tuple(parse_attrs(edit.attrs, edit.op or edit.edit, "attrs").items()),
        edit.other.strip().removeprefix("%"),
        edit.position,
    )
