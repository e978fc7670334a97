"""`repair`: the fewest edits after which a distributed program is proved, as a diff of its text."""

from __future__ import annotations

import difflib
from pathlib import Path

from agent import events
from agent.errors import Exit
from agent.run import Outcome, Run
from verifier.contract_text import compose, load_contract
from verifier.ir.files import load
from verifier.ir.program import Program
from verifier.ir.text import to_text
from verifier.repair import Edit, Repaired, repair


def mend(
    run: Run, sequential: Path, distributed: Path, contract: Path, max_edits: int, seconds: float
) -> Outcome:
    """Repair the program in one file so that it computes another under a contract.

    Raises:
        IRError, ContractError: files that cannot be read, or that do not fit.
    """
    with run.phase("load"):
        one, written = load(sequential), load(distributed)
        stated = load_contract(contract, one, written)
        many, asked = compose(written, stated)
        fixed = contract_values(many) if stated.given or stated.taken else frozenset[str]()
    with run.phase("repair") as phase:
        found = repair(one, many, asked, max_edits=max_edits, seconds=seconds, fixed=fixed)
        phase.facts.update({"tried": found.tried, "seconds": round(found.seconds, 3)})
        phase.summary = f"{found.tried} edits tried"
    if not isinstance(found, Repaired):
        message = found.reason
        if found.best:
            message += "; nearest: " + "; ".join(map(str, found.best))
        run.emit(events.VerdictReached(verdict="unknown", message=message))
        return Outcome(Exit.NOT_PROVED, "unknown", answer=f"not repaired: {message}")
    lines = [told(many, edit) for edit in found.edits] or ["nothing to repair"]
    changed = diff(many, found.program, str(distributed))
    run.emit(
        events.Repaired(
            edits=[str(e) for e in found.edits],
            sources=[s for e in found.edits if (s := source(many, e))],
            diff=changed,
        )
    )
    run.emit(events.VerdictReached(verdict="proved", message="; ".join(lines)))
    return Outcome(Exit.PROVED, "proved", answer="\n".join([*lines, *([changed] * bool(changed))]))


def contract_values(program: Program) -> frozenset[str]:
    """Values that the `given` and `taken` programs of a contract make: they are not edited."""
    made = (v for n in program.nodes for v in n.outputs)
    return frozenset(v for v in made if v.startswith(("given.", "taken.")))


def told(program: Program, edit: Edit) -> str:
    """An edit in words, with the source line of the op that it is about."""
    place = source(program, edit)
    return f"{edit}  {place}".rstrip()


def source(program: Program, edit: Edit) -> str:
    """`file:line  module  the line itself` of the op that an edit is about, where it is known."""
    scope = program
    for name in edit.scope:
        node = scope.producers().get(name)
        if node is None or node.body is None:
            return ""
        scope = node.body
    value = edit.value
    for out in scope.outputs:
        if f"{out.role}:{out.path}" == value:
            value = out.value
    node = scope.producers().get(value)
    if node is None or not node.source.file:
        return ""
    text = f"  | {node.source.text}" if node.source.text else ""
    return f"{node.source}{text}"


def diff(before: Program, after: Program, name: str) -> str:
    """A unified diff of the text of two programs; empty where they are alike."""
    old, new = to_text(before).splitlines(), to_text(after).splitlines()
    found = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="")
    return "\n".join(found)
