"""Prints programs in the text form, which `text.py` describes and reads."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Affine, Attr, Mesh, Source
from shardproof.verifier.kernel.program.where import Where
from shardproof.verifier.text import source_note
from shardproof.verifier.text.tokens import quote, value, word

_NOTE_COLUMN = 64
_RESERVED = ("true", "false", "affine")


def to_text(program: Program) -> str:
    """The text of a program; `parse_text` gives the same program back."""
    mesh = f" mesh({_mesh(program.mesh)})" if program.mesh.dims else ""
    lines = [f"program {word(program.name)}{mesh}", *_body(program, "  ")]
    return "\n".join(lines) + "\n"


def _mesh(mesh: Mesh) -> str:
    return ", ".join(f"{word(name)}={size}" for name, size in mesh.dims)


def _where(where: Where) -> str:
    return ", ".join(
        f"{word(name)}={chosen[0] if len(chosen) == 1 else list(chosen)}" for name, chosen in where
    )


def _body(program: Program, indent: str) -> Iterator[str]:
    for item in program.inputs:
        path = "" if item.path == item.name else f" {quote(item.path)}"
        on = f" on({_where(item.where)})" if item.where else ""
        yield f"{indent}{item.role} {value(item.name)}: {item.type}{path}{on}"
    for node in program.nodes:
        yield from _node(program, node, indent)
    shown: list[str] = []
    for out in program.outputs:
        role = "" if out.role == "output" else f"{out.role} "
        path = "" if out.path == out.value else f" {quote(out.path)}"
        shown.append(f"{role}{value(out.value)}{path}")
    separator = f",\n{indent}       " if len(shown) > 3 else ", "
    yield f"{indent}return {separator.join(shown)}".rstrip()


def node_text(program: Program, node: Node, indent: str = "", typed: bool = True) -> str:
    """One node of a program as it is printed, without its source; types can be left out."""
    bare = replace(node, source=Source())
    text = "\n".join(_node(program, bare, indent))
    if typed or node.body is not None:
        return text
    return text.rpartition(f" : {', '.join(str(program.types[v]) for v in node.outputs)}")[0]


def show_where(where: Where) -> str:
    """Ranks as they are written in `on(...)`."""
    return _where(where)


def _node(program: Program, node: Node, indent: str) -> Iterator[str]:
    """The line of a node. A scan leaves out types, which its body gives, and may be long."""
    order = {name: i for i, name in enumerate(lookup(node.op).attrs)}
    named = sorted(node.attrs.items(), key=lambda item: order.get(item[0], len(order)))
    attrs = ", ".join(f"{k}={show_attr(v)}" for k, v in named)
    words = [*_listed(node.outputs), "=", node.op, *_listed(node.inputs)]
    words += [f"{{{attrs}}}"] if attrs else []
    words += [f"on({_where(node.where)})"] if node.where else []
    words += ["async"] if node.timing.asynchronous else []
    words += [f"stream({word(node.timing.stream)})"] if node.timing.stream else []
    words += [f"into({word(node.timing.buffer)})"] if node.timing.buffer else []
    if node.body is None:
        words += [":", ", ".join(str(program.types[v]) for v in node.outputs)]
        line = indent + " ".join(words)
    else:
        words += ["body", word(node.body.name)]
        words += [f"mesh({_mesh(node.body.mesh)})"] if node.body.mesh != program.mesh else []
        line = _folded([*words, "{"], indent)
    note = source_note.show(node.source)
    room = " " * max(0, _NOTE_COLUMN - len(line.rpartition("\n")[2]))
    yield f"{line}{room}  {note}" if note else line
    if node.body is not None:
        yield from _body(node.body, indent + "  ")
        yield f"{indent}}}"


def _listed(values: Sequence[str]) -> list[str]:
    """Names, each but the last with its comma."""
    return [value(v) + ("," if i + 1 < len(values) else "") for i, v in enumerate(values)]


def _folded(words: Sequence[str], indent: str) -> str:
    """Words in lines of at most 100 columns where they allow it."""
    lines = [indent]
    for item in words:
        if len(lines[-1]) + 1 + len(item) > 100 and lines[-1].strip():
            lines.append(f"{indent}    ")
        lines[-1] += item if not lines[-1].strip() else f" {item}"
    return "\n".join(lines)


def show_attr(attr: Attr) -> str:
    """An attribute value as it is written in the text form."""
    match attr:
        case bool():
            return "true" if attr else "false"
        case int():
            return str(attr)
        case Fraction():
            return _fraction(attr)
        case Affine():
            return _affine(attr)
        case str():
            return quote(attr) if attr in _RESERVED else word(attr)
        case tuple():
            return f"[{', '.join(map(show_attr, attr))}]"


def _fraction(number: Fraction) -> str:
    try:
        nearest = float(number)
    except OverflowError:
        nearest = 0.0
    exact = Fraction(nearest) == number
    return repr(nearest) if exact else f"{number.numerator}/{number.denominator}"


def _affine(number: Affine) -> str:
    if not number.terms:
        return f"affine({number.const})"
    shown = "".join(f"{c:+d}*{word(mesh_dim)}" for mesh_dim, c in number.terms)
    return shown.removeprefix("+") + (f"{number.const:+d}" if number.const else "")
