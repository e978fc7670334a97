"""Source under translation, made fit for a prompt: it was written by someone we do not know.

Comments, docstrings, long strings, hidden characters and anything that looks like a key are taken
out; what is left is cut to a budget at a line, and lines keep their numbers.
"""

import ast
import io
import secrets
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardproof.agent.llm.hygiene import clean, one_line
from shardproof.agent.llm.secret import holds_a_key, redacted
from shardproof.agent.run.errors import InputError
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Source

LONGEST_STRING = 48
"""Characters of a string literal that is kept; what a model computes is not in longer ones."""
LONGEST_SOURCE = 2_000_000
CUT = "..."


def boundary() -> str:
    """A word that the author of a text cannot guess."""
    return f"B{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Source for a prompt."""

    text: str
    """Numbered lines."""
    cut: int
    """Lines left out at the end."""


def prepared(source: str, file: str, budget: int) -> Prepared:
    """Source as at most `budget` characters of code.

    Raises:
        InputError: it is not Python, or far too long.
    """
    if len(source) > LONGEST_SOURCE:
        raise InputError("source too long to translate", where=one_line(file), got=f"{len(source)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes in strings would quote the source
            ast.parse(source)
            bare = _without_strings(_without_comments(source))
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError, MemoryError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        where = f"{one_line(file)}:{line}" if line else one_line(file)
        raise InputError(
            "source that is not Python", where=where, got=type(error).__name__
        ) from None
    numbered = [
        f"{number:4d}| {clean(redacted(line)).rstrip()}"
        for number, line in enumerate(bare.split("\n"), 1)
        if line.strip()
    ]
    kept: list[str] = []
    size = 0
    for line in numbered:
        size += len(line) + 1
        if size > budget:
            break
        kept.append(line)
    return Prepared("\n".join(kept), len(numbered) - len(kept))


def _without_comments(source: str) -> str:
    """Blanks for comments; every other character stays at its line and column."""
    source = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = source.replace("\f", " ").split("\n")
    text = "\n".join(lines)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(lines)


def _without_strings(source: str) -> str:
    """Docstrings and other strings that are statements go; long literals become `"..."`."""
    rows = [line.encode() for line in source.split("\n")]
    for node, text in sorted(_strings(ast.parse(source)), key=lambda n: _start(n[0]), reverse=True):
        _put(rows, node, text.encode())
    return "\n".join(row.decode() for row in rows)


def _start(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _strings(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Strings to replace, and what by; none inside another."""
    todo: list[ast.AST] = [tree]
    hidden: set[int] = set()
    while todo:
        node = todo.pop()
        hidden |= {id(part) for value in _given_to_keys(node) for part in ast.walk(value)}
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str | bytes):
                yield node.value, CUT
            continue
        if isinstance(node, ast.JoinedStr):
            joined = "".join(_said(part) for part in node.values)
            if _extent(node) > LONGEST_STRING or id(node) in hidden or _secret(joined):
                yield node, f'"{CUT}"'
            continue
        if isinstance(node, ast.Constant):
            text = isinstance(node.value, str | bytes)
            odd = id(node) in hidden or _extent(node) > LONGEST_STRING
            # parts of a key that Python joins are one here, and were not on their lines
            if text and (odd or _secret(_said(node))):
                prefix = "b" if isinstance(node.value, bytes) else ""
                yield node, f'{prefix}"{CUT}"'
            continue
        todo += ast.iter_child_nodes(node)


def _given_to_keys(node: ast.AST) -> Iterator[ast.expr]:
    """What is assigned or passed to a name that a credential is given to."""
    match node:
        case ast.Assign(targets=targets, value=value):
            pairs = [(_name(t), value) for t in targets]
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            pairs = [(_name(target), value)]
        case ast.keyword(arg=str() as name, value=value):
            pairs = [(name, value)]
        case ast.Dict(keys=keys, values=values):
            pairs = [(_said(k), v) for k, v in zip(keys, values, strict=True)]
        case ast.arguments(kwonlyargs=more, defaults=defaults, kw_defaults=kw_defaults):
            plain = [*node.posonlyargs, *node.args]
            last = plain[len(plain) - len(defaults) :]
            both = [*zip(last, defaults, strict=True), *zip(more, kw_defaults, strict=True)]
            pairs = [(a.arg, v) for a, v in both if v is not None]
        case _:
            return
    yield from (value for name, value in pairs if holds_a_key(name))


def _name(target: ast.expr) -> str:
    match target:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=part):
            return _said(part)
        case _:
            return ""


def _said(node: ast.expr | None) -> str:
    value = node.value if isinstance(node, ast.Constant) else ""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _secret(text: str) -> bool:
    return redacted(text) != text


def _extent(node: ast.expr) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    if node.end_lineno != node.lineno:
        return LONGEST_STRING + 1
    return node.end_col_offset - node.col_offset


def _put(rows: list[bytes], node: ast.expr, text: bytes) -> None:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    tail = rows[last][node.end_col_offset :]
    rows[first] = rows[first][: node.col_offset] + text + (tail if first == last else b"")
    for row in range(first + 1, last + 1):
        rows[row] = tail if row == last else b""
    if first != last and tail.strip():
        rows[first] += tail
        rows[last] = b""


def bare(program: Program) -> Program:
    """The program without the owner's source lines: places stay, what stands there does not."""

    def plain(node: Node) -> Node:
        file = one_line(node.source.file, 80)
        body = bare(node.body) if node.body is not None else None
        return replace(node, source=Source(file, node.source.line), body=body)

    return replace(program, nodes=tuple(plain(n) for n in program.nodes))


def excerpt(text: str, budget: int, focus: str = "") -> str:
    """Text cut at lines to about `budget` characters: its start, and what surrounds `focus`."""
    if len(text) <= budget:
        return text
    lines = text.split("\n")
    at = next((i for i, line in enumerate(lines) if focus and focus in line), 0)
    keep = set(_upto(range(len(lines)), lines, budget // 3))
    near = sorted(range(len(lines)), key=lambda i: (abs(i - at), i))
    keep |= set(_upto(near, lines, budget - budget // 3))
    out: list[str] = []
    skipped = 0
    for index, line in enumerate(lines):
        if index in keep:
            out += [f"... {skipped} lines left out ..."] if skipped else []
            out.append(line)
            skipped = 0
        else:
            skipped += 1
    return "\n".join([*out, f"... {skipped} lines left out ..."] if skipped else out)


def _upto(order: range | list[int], lines: list[str], budget: int) -> Iterator[int]:
    for index in order:
        budget -= len(lines[index]) + 1
        if budget < 0:
            return
        yield index
