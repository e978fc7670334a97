"""Changes of source that may repair a parallel module, likeliest first. None is judged here.

Each is what a person would try: a collective taken away, put in, or exchanged for another; another
group, dim or factor; an addend that joins after the sum; a gradient reduced afterwards; another
entry of a plan. Where the fault is known to lie, and which edit of the traced program fixes it,
says in which order.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardproof.synthesis.repair.afterwards import finished, wrapped
from shardproof.synthesis.repair.culprits import AVERAGES, COUNTS, REDUCES, RETURNED, SETS
from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.faults import beside
from shardproof.synthesis.repair.in_source import Module, Region, Rewrite, group_attributes, regions
from shardproof.synthesis.repair.looked import Looked
from shardproof.synthesis.repair.node_changes import At
from shardproof.synthesis.repair.plan_entries import plan_entries
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.types import NOWHERE, Source

FAR = 12
"""Lines from the fault beyond which all are equally far."""
UNUSED = 10
"""What a change costs more where nothing leads from the target."""
NEAR = 3
"""Lines from the fault within which expressions are wrapped and numbers changed."""
TACTICS = {
    "drop": ("drop", "swap", "scale"),
    "drop_alike": ("drop", "swap", "scale"),
    "skip": ("drop", "scale", "swap", "order"),
    "commute": ("order", "swap", "insert"),
    "swap": ("order", "number", "compare"),
    "rewire": ("swap", "order", "number", "insert", "apply"),
    "on": ("insert", "apply", "compare", "drop"),
}
"""Changes of source by the kind of the edit of the traced program."""
BLAMED = {
    REDUCES: ("finish", "reduce", "drop", "insert", "apply"),
    AVERAGES: ("drop", "wrap", "scale"),
    RETURNED: ("wrap",),
    COUNTS: ("compare", "rows", "number"),
    SETS: ("rows", "number", "scale", "group"),
    "": ("wait",),
}
"""Changes of source by why a line is to blame; first of what waits, or is used too early."""


@dataclass(frozen=True)
class Hint:
    """A place that is likely at fault, and what is likely to be changed there."""

    file: str
    line: int
    tactics: tuple[str, ...] = ()


def tactics_for(said: str, edits: Sequence[Edit]) -> tuple[str, ...]:
    """Which changes of source are likely at the line that is to blame, and why it is."""
    why = next((k for k in BLAMED if k and said.startswith(k)), None)
    more = [t for edit in edits for t in tactics_of(edit)]
    kinds = [e.kind for e in edits]
    exchanged = ["swap"] if {"after", "drop"} <= set(kinds) else []
    both = ["apply"] if kinds.count("after") > 1 else []
    return tuple(
        dict.fromkeys([*exchanged, *both, *(BLAMED[why] if why is not None else ()), *more])
    )


def tactics_of(edit: Edit) -> tuple[str, ...]:
    """Which changes of source an edit of the traced program may stand for."""
    attrs = {name for name, _ in edit.attrs}
    if edit.kind in ("set", "set_alike", "replace") and attrs:
        if edit.op and lookup(edit.op).kind == "collective" and "reduce" not in attrs:
            return ("swap", "reduce", "group", "plan")
        if edit.kind == "replace" and not attrs & {"reduce", "mesh_dim"}:
            return ("compare", "order", "number")
        words = {"reduce": "reduce", "mesh_dim": "group", "value": "scale", "scale": "scale"}
        named = [words.get(a, "number") for a in sorted(attrs)]
        if named == ["scale"]:
            return ("reduce", "drop", "scale", "swap")
        return (*named, "reduce", "scale", "swap")
    if edit.kind == "after":
        kind = lookup(edit.op).kind
        if kind in ("collective", "movement"):
            return ("insert", "apply", "finish", "swap", "reduce", "plan")
        return ("scale", "reduce", "finish", "number")
    return TACTICS.get(edit.kind, ())


def rewrites(module: Module, hints: Sequence[Hint]) -> list[Rewrite]:
    """All changes, likeliest first: those of the kind that a hint names, near its place."""
    known = regions(module.files)
    hints = [*hints, *_led_to(module, hints)]
    used: dict[str, list[range]] = {name: [] for name in module.files}
    for file, made in Looked(module, NOWHERE).reached.values():
        used[file.path].append(range(made.lineno, (made.end_lineno or made.lineno) + 1))
    found: dict[tuple[str, str], tuple[float, Rewrite]] = {}
    for rewrite in _all(module, known, hints):
        if (rewrite.file, rewrite.line) in module.shared:
            continue
        cost = min((_cost(rewrite, h, i) for i, h in enumerate(hints)), default=0.0)
        cost += 0 if any(rewrite.line in lines for lines in used[rewrite.file]) else UNUSED
        key = rewrite.file, rewrite.text
        if key not in found or cost < found[key][0]:
            found[key] = cost, rewrite
    return _in_turn(sorted(found.values(), key=lambda f: f[0]))


def _led_to(module: Module, hints: Sequence[Hint]) -> Iterator[Hint]:
    """The lines to look at beside those of hints."""
    for hint in hints:
        for lead in beside(Looked(module, Source(hint.file, hint.line))):
            yield Hint(lead.line.file, lead.line.line, hint.tactics)


def _in_turn(found: Sequence[tuple[float, Rewrite]]) -> list[Rewrite]:
    """By cost; many of one kind at one place cost more and more, so that others have their turn."""
    seen: dict[tuple[str, int, str], int] = {}
    out: list[tuple[float, int, Rewrite]] = []
    for at, (cost, rewrite) in enumerate(found):
        key = rewrite.file, rewrite.line, rewrite.tactic
        seen[key] = seen.get(key, 0) + 1
        out.append((cost + 1.5 * (seen[key] - 1), at, rewrite))
    return [r for _, _, r in sorted(out, key=lambda o: o[:2])]


def _cost(rewrite: Rewrite, hint: Hint, index: int) -> float:
    far = abs(rewrite.line - hint.line) if rewrite.file == hint.file else FAR
    if rewrite.tactic in ("finish", "plan", "wrap"):
        far = 0
    if rewrite.tactic == "group":
        far = min(far, 2)
    place = hint.tactics.index(rewrite.tactic) if rewrite.tactic in hint.tactics else 8
    place = 0 if rewrite.tactic == "operand" else place
    return min(far, FAR) + 1.5 * place + 0.5 * index


def _all(module: Module, known: Mapping[str, Region], hints: Sequence[Hint]) -> Iterator[Rewrite]:
    attributes = group_attributes(module.files)
    for file in module.files.values():
        near = {
            line
            for h in hints
            if h.file == file.path
            for line in range(h.line - NEAR, h.line + NEAR + 1)
        }
        at = At(module, known, attributes, file, near)
        for node in ast.walk(file.tree):
            if isinstance(node, ast.expr | ast.stmt):
                yield from at.changes(node)
    own = next(iter(module.files.values()), None)
    if own is not None:
        yield from finished(module, own, attributes)
        yield from wrapped(module, own)
    yield from plan_entries(module.files, module.params, module.wrong)
