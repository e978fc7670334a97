"""What an edit of a program means for the source line that its op came from.

A line is only shown, and only changed, where it still is what the program says that it was. What is
suggested is text: the program is proved, its source is not run.
"""

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from shardproof.synthesis.emit.patch import EmitError
from shardproof.synthesis.emit.source import Edit as TextEdit
from shardproof.synthesis.repair.edits import Edit, node_of
from shardproof.synthesis.repair.in_source import SourceFile
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Attr, Source
from shardproof.verifier.text.printing import show_attr

SPELLED: tuple[dict[str, str], ...] = (
    {"sum": "sum", "avg": "mean", "max": "max", "min": "min"},
    {"sum": "sum", "avg": "avg", "max": "max", "min": "min"},
    {"sum": "SUM", "avg": "AVG", "max": "MAX", "min": "MIN"},
)
"""How sources spell reductions."""
KEYWORDS = {"mesh_dim": ("mesh_dim",)}
"""Attributes that only a keyword of these names says; a tensor may be called so too."""
LONGEST = 2_000_000
"""Characters of a source file that is read."""


@dataclass(frozen=True)
class Suggestion:
    """A change of source, in words, and as a diff where one line says it all."""

    place: str
    """`file:line`"""
    says: str
    diff: str = ""


def suggestion(program: Program, edit: Edit, folder: Path) -> Suggestion | None:
    """What to change at the source line of the op; None where no file is known."""
    node = node_of(program, edit)
    if node is None or not node.source.file:
        return None
    place = f"{node.source.file}:{node.source.line}"
    file = _file(node.source, folder)
    changes: list[TextEdit] = []
    if file is not None and edit.kind in ("set", "set_alike", "replace"):
        changes = _changed(file, node, dict(edit.attrs), edit.op or node.op)
    elif file is not None and edit.kind == "after" and not edit.uses and not edit.operands:
        changes = _inserted(file, node, edit)
    after = file.spliced(*changes) if file is not None else None
    diff = unified(file.text, after, file.path.lstrip("/")) if file and after else ""
    shown = f"`{node.source.text}`: " if node.source.text else ""
    return Suggestion(place, f"{shown}{_says(node, edit)}", diff)


def _says(node: Node, edit: Edit) -> str:
    attrs = ", ".join(f"{k}={show_attr(v)}" for k, v in edit.attrs)
    match edit.kind:
        case "after":
            return f"put {edit.op} ({attrs}) after what this line makes" if attrs else str(edit)
        case "drop" | "drop_alike":
            return f"take the {node.op} of this line away"
        case "skip":
            return "leave this line out"
        case "commute":
            return f"do the {node.op} of this line before what it now comes after"
        case "set" | "set_alike" | "replace" if edit.op in ("", node.op):
            was = ", ".join(
                f"{k}={show_attr(node.attrs[k])}" for k, _ in edit.attrs if k in node.attrs
            )
            return f"{attrs} in place of {was}" if was else attrs
        case "replace":
            return f"{edit.op} ({attrs}) in place of {node.op}"
        case _:
            return str(edit)


def _file(source: Source, folder: Path) -> SourceFile | None:
    """The file, where it is Python and its line is as the program says."""
    for path in (Path(source.file), folder / source.file):
        try:
            if not path.is_file():  # a pipe or a device would be read for ever
                continue
            if path.stat().st_size > LONGEST:
                return None
            text = path.read_bytes().decode("utf-8")
        except (OSError, ValueError):
            continue
        lines = text.split("\n")
        if 0 < source.line <= len(lines) and source.text:
            same = lines[source.line - 1].strip() == source.text.strip()
            try:
                return SourceFile(source.file, text) if same else None
            except (EmitError, ValueError, RecursionError):
                return None
    return None


def _changed(file: SourceFile, node: Node, attrs: dict[str, Attr], op: str) -> list[TextEdit]:
    """The one literal exchanged that says the attribute; nothing where not just one does."""
    changed = {k: v for k, v in attrs.items() if node.attrs.get(k) != v}
    if op != node.op or len(changed) != 1:
        return []
    ((name, new),) = changed.items()
    old = node.attrs.get(name)
    found = list(_literals(file, node.source.line, name, old))
    now = _spelled(file.of(found[0]), old, new) if len(found) == 1 else None
    return [] if now is None else [file.put(found[0], now)]


CLASSES = {
    "all_reduce": ("AllReduce", ("reduce",)),
    "all_gather": ("AllGather", ("dim",)),
}
"""Collectives of the class interface, and the attributes that stand after their two names."""


def _inserted(file: SourceFile, node: Node, edit: Edit) -> list[TextEdit]:
    """A collective of a class program after its op: the name stays that of the sum.

    Only in a list of ops, where the class is imported and one call on the line makes the tensor.
    """
    name, first = CLASSES.get(edit.op, ("", ()))
    attrs = dict(edit.attrs)
    over = attrs.pop("mesh_dim", None)
    if not name or set(attrs) != set(first) or not isinstance(over, str):
        return []
    nodes = list(ast.walk(file.tree))
    known = {a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
    tensor, line = node.outputs[0], node.source.line
    listed = [e for n in nodes if isinstance(n, ast.List) for e in n.elts]
    calls = [c for c in listed if isinstance(c, ast.Call) and c.lineno == c.end_lineno == line]
    made = [(c, a) for c in calls for a in c.args if _is(a, tensor)]
    if name not in known or len(made) != 1:
        return []
    call, literal = made[0]
    rest = "".join(
        f", {show_attr(attrs[k])!r}" if k == "reduce" else f", {attrs[k]}" for k in first
    )
    rest = "" if rest == ", 'sum'" else rest
    more = f', {name}("{tensor}_part", "{tensor}"{rest}, mesh_dim="{over}")'
    end = file.span(call)[1]
    return [file.put(literal, f'"{tensor}_part"'), TextEdit(end, end, more)]


def _is(part: ast.expr, word: str) -> bool:
    return isinstance(part, ast.Constant) and part.value == word


def _literals(file: SourceFile, line: int, name: str, old: Attr | None) -> Iterator[ast.expr]:
    """Literals in calls on a line that say an attribute's value."""
    seen: set[int] = set()
    for call in ast.walk(file.tree):
        if not isinstance(call, ast.Call):
            continue
        named = [k.value for k in call.keywords if k.arg in KEYWORDS.get(name, (k.arg,))]
        plain = [] if name in KEYWORDS else call.args
        for part in (*plain, *named):
            here = part.lineno == part.end_lineno == line and part.col_offset not in seen
            if here and _says_it(part, old):
                seen.add(part.col_offset)
                yield part


def _words(old: Attr | None) -> set[str]:
    """How a source may spell a word."""
    return {old, *(s[old] for s in SPELLED if old in s)} if isinstance(old, str) else set()


def _says_it(part: ast.expr, old: Attr | None) -> bool:
    if isinstance(part, ast.Constant):
        value = part.value
        if isinstance(value, bool) or isinstance(old, bool):
            return value is old
        if isinstance(old, int | Fraction):
            return isinstance(value, int | float) and Fraction(value) == old
        return value in _words(old)
    return isinstance(part, ast.Attribute) and part.attr in _words(old)


def _spelled(was: str, old: Attr | None, new: Attr) -> str | None:
    """The new value, spelled as the old one is."""
    if isinstance(new, int):
        return str(new)
    if isinstance(new, Fraction):
        return str(new.numerator) if new.denominator == 1 else repr(float(new))
    if not isinstance(new, str) or not isinstance(old, str):
        return None
    bare = was.strip("\"'").rpartition(".")[2]
    for style in SPELLED:
        if style.get(old) == bare and new in style:
            return was.replace(bare, style[new])
    return was.replace(old, new) if bare == old else None


def unified(before: str, after: str, name: str) -> str:
    """A unified diff of two texts; empty where they are alike."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    out: list[str] = []
    for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"):
        whole = line.endswith("\n")
        out.append(line if whole else f"{line}\n\\ No newline at end of file\n")
    return "".join(out).rstrip("\n")
