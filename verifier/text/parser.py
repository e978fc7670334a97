"""The text form of programs: what people and models read and write.

    program mlp mesh(tp=2)
      param %w: f32[4, 8] "fc1.weight"
      input %x: f32[2, 4]
      %h = mm %x, %w : f32[2, 8]                @ model.py:14 fc1 | h = self.fc1(x)
      %y = all_reduce %h {mesh_dim=tp, reduce=sum} : f32[2, 8]
      return %y

Types of results may be left out; where they are written they are checked. A `scan` has its body
in braces after its attributes. `#` starts a comment. Attribute values: integers, decimals (the
double they denote, exactly), rationals `1/3`, `true`, names, strings, lists, and integers that are
affine in mesh coordinates, `4*tp+cp+1`.

After its attributes a node may say which ranks run it, `on(pp=0)` or `on(pp=[0, 1], tp=0)`, and
how it runs in time: `async` (its result is in flight until a `wait` reads it), `stream(NAME)`,
`into(BUFFER)`. An input may say `on(...)` after its path: which ranks hold it.
"""

import re
from fractions import Fraction

from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.program import IN_ORDER, INPUT_ROLES, Program, Timing
from shardproof.verifier.kernel.program.types import (
    KINDS,
    OFFSET,
    Affine,
    Attr,
    Mesh,
    Source,
    TensorType,
)
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where
from shardproof.verifier.text import source_note
from shardproof.verifier.text.assemble import Assembly, mesh_of, near, tensor_type
from shardproof.verifier.text.printing import to_text
from shardproof.verifier.text.spans import Returned, Scope, Span, Statement
from shardproof.verifier.text.tokens import Tokens, value

__all__ = ["parse_attrs", "parse_spans", "parse_text", "to_text"]


def parse_text(text: str, filename: str = "<text>") -> Program:
    """Read the text form.

    Raises:
        MalformedError: one message with file, line and column.
    """
    return parse_spans(text, filename)[0]


def parse_spans(text: str, filename: str = "<text>") -> tuple[Program, Scope]:
    """Read the text form, and where its parts stand.

    Raises:
        MalformedError: one message with file, line and column.
    """
    tokens = Tokens(text, filename)
    tokens.expect("program", "a program starts with its name")
    name = tokens.name("program name")
    mesh = read_mesh(tokens) if tokens.accept("mesh") else Mesh()
    found = _program(tokens, name, mesh, 0)
    if tokens.kind != "end":
        raise tokens.fail("text after the end of the program", "nothing")
    return found


def parse_attrs(text: str, op: str, filename: str = "<text>") -> dict[str, Attr]:
    """Read attributes alone, `mesh_dim=tp, reduce=sum`, with or without their braces.

    Raises:
        MalformedError: one message with file, line and column.
    """
    bare = text.strip()
    tokens = Tokens(bare if bare.startswith("{") else f"{{{bare}}}", filename)
    attrs, _ = _attrs(tokens, op)
    if tokens.kind != "end":
        raise tokens.fail(f"text after the attributes of {op}", "nothing")
    return attrs


def read_mesh(tokens: Tokens) -> Mesh:
    """`(tp=2, dp=4)`, what follows the word `mesh`. Raises MalformedError."""
    start = tokens.start
    tokens.expect("(", "mesh dims")
    dims: list[tuple[str, int]] = []
    for _ in tokens.listed(")", "mesh dims"):
        name = tokens.name("name of a mesh dim")
        tokens.expect("=", f"size of mesh dim {name}")
        dims.append((name, tokens.integer(f"size of mesh dim {name}")))
    with tokens.located(start):
        return mesh_of(dims)


def _program(tokens: Tokens, name: str, mesh: Mesh, depth: int) -> tuple[Program, Scope]:
    start, scope = tokens.start, Scope(tokens.end)
    try:
        parts = Assembly(name, mesh, depth)
        while not tokens.accept("return"):
            start = tokens.start
            read = _statement if tokens.kind == "value" else _input
            scope.statements.append(read(tokens, parts))
        separated = tokens.kind == "value" or tokens.kind == "word"
        while separated:
            start = tokens.start
            role = tokens.advance() if tokens.kind == "word" else "output"
            begin, out = tokens.start, tokens.value("an output")
            at, begin = tokens.since(begin), tokens.start
            parts.output(out, role, _path(tokens, out))
            scope.returned.append(Returned(at, tokens.read(begin)))
            separated = tokens.accept(",")
        return parts.build(), scope
    except MalformedError as error:
        raise _later(tokens, start, error) from None


def _later(tokens: Tokens, start: int, error: MalformedError) -> MalformedError:
    """The error with its place; a value defined further down is said to be so."""
    located = error.at(tokens.place(start))
    missing = re.match(r"%(\S+) is not defined here", error.what)
    if missing and not error.where:
        name = re.escape(value(missing.group(1)))
        rest = re.compile(rf"^[ \t]*(?:%[^\s,=]+,[ \t]*)*{name}[ \t]*[,=]", re.MULTILINE)
        found = rest.search(tokens.source, start)
        if found:
            line = tokens.source.count("\n", 0, found.end()) + 1
            located = MalformedError(
                f"%{missing.group(1)} is used before it is defined",
                where=located.where,
                expected=error.expected,
                got=f"a definition on line {line}",
                hint="a program has no cycles: move the definition up",
            )
    return located


def _path(tokens: Tokens, default: str) -> str:
    return tokens.name("a path") if tokens.kind == "string" else default


def _input(tokens: Tokens, parts: Assembly) -> Statement:
    start = tokens.start
    if tokens.kind != "word" or tokens.text not in INPUT_ROLES:
        hint = near(tokens.text, (*INPUT_ROLES, "return")) if tokens.kind == "word" else ""
        roles = ", ".join(INPUT_ROLES)
        raise tokens.fail("a statement", f"an input ({roles}), %name = op ..., or return", hint)
    role = tokens.advance()
    name = tokens.value(f"name of a {role}")
    tokens.expect(":", f"type of %{name}")
    type = _type(tokens)
    path = _path(tokens, name)
    parts.input(name, type, role, path, _where(tokens, parts))
    return Statement((name,), tokens.since(start), is_input=True)


def _type(tokens: Tokens) -> TensorType:
    start = tokens.start
    dtype = tokens.take("word", "a type", "a type such as f32[4, 8]")
    tokens.expect("[", f"extents of a {dtype} tensor")
    listed = tokens.listed("]", f"extents of a {dtype} tensor")
    shape = [tokens.integer("an extent") for _ in listed]
    with tokens.located(start):
        return tensor_type(dtype, shape)


def _statement(tokens: Tokens, parts: Assembly) -> Statement:
    """`%a, %b = op %x, %y {attr=...} : types body name { ... }  @ source`."""
    begin = tokens.start
    outputs = [tokens.value("a result")]
    while tokens.accept(","):
        outputs.append(tokens.value("a result"))
    tokens.expect("=", f"definition of %{outputs[0]}")
    start = tokens.start
    op = tokens.take("word", f"op that defines %{outputs[0]}", "the name of an op")
    found = Statement(tuple(outputs), Span(begin, begin), tokens.since(start))
    inputs: list[str] = []
    while tokens.kind == "value":
        at = tokens.start
        inputs.append(tokens.value("an operand"))
        found.operands.append(tokens.since(at))
        if not tokens.accept(","):
            break
    at = tokens.start
    attrs, found.values = _attrs(tokens, op)
    found.attrs, found.head_end, at = tokens.read(at), tokens.end, tokens.start
    where = _where(tokens, parts)
    found.where = tokens.read(at)
    timing = _timing(tokens)
    written: list[TensorType] | None = None
    if tokens.accept(":"):
        at = tokens.start
        written = [_type(tokens)]
        while tokens.accept(","):
            written.append(_type(tokens))
        found.types = tokens.since(at)
    body = None
    if tokens.text in ("body", "{") and tokens.kind in ("word", "punct"):
        name = tokens.name("name of a body") if tokens.accept("body") else op
        mesh = read_mesh(tokens) if tokens.accept("mesh") else parts.mesh
        tokens.expect("{", f"body of {op}")
        at, source = tokens.start, _note(tokens)
        found.note = tokens.read(at)
        body, found.body = _program(tokens, name, mesh, parts.depth + 1)
        tokens.expect("}", f"end of the body of {op}")
    else:
        at, source = tokens.start, _note(tokens)
        found.note = tokens.read(at)
    found.whole = tokens.since(begin)
    try:
        parts.node(op, inputs, outputs, attrs, source, body, written, where, timing)
    except MalformedError as error:
        raise _later(tokens, start, error) from None
    return found


def _where(tokens: Tokens, parts: Assembly) -> Where:
    """`on(pp=0, tp=[0, 2])`."""
    start = tokens.start
    if not tokens.accept("on"):
        return EVERYWHERE
    tokens.expect("(", "ranks")
    chosen: list[tuple[str, list[int]]] = []
    while not chosen or not tokens.accept(")"):
        if chosen:
            tokens.expect(",", "ranks")
        name = tokens.name("name of a mesh dim")
        tokens.expect("=", f"coordinates of {name}")
        several = tokens.accept("[")
        listed = tokens.listed("]", f"coordinates of {name}") if several else (None,)
        chosen.append((name, [tokens.integer(f"a coordinate of {name}") for _ in listed]))
    with tokens.located(start):
        return parts.where(chosen)


def _timing(tokens: Tokens) -> Timing:
    """`async stream(NAME) into(BUFFER)`, each optional, in this order."""
    asynchronous = tokens.accept("async")
    names = {"stream": "", "into": ""}
    for word in names:
        if tokens.accept(word):
            tokens.expect("(", word)
            names[word] = tokens.name(f"name of a {word}")
            tokens.expect(")", word)
    if not asynchronous and not any(names.values()):
        return IN_ORDER
    return Timing(asynchronous, names["stream"], names["into"])


def _note(tokens: Tokens) -> Source:
    if tokens.kind != "source":
        return Source()
    with tokens.located(tokens.start):
        return source_note.read(tokens.advance())


def _attrs(tokens: Tokens, op: str) -> tuple[dict[str, Attr], dict[str, Span]]:
    """Attributes, and where the value of each stands."""
    attrs: dict[str, Attr] = {}
    places: dict[str, Span] = {}
    if not tokens.accept("{"):
        return attrs, places
    for _ in tokens.listed("}", f"attributes of {op}"):
        if tokens.text in attrs:
            raise tokens.fail(f"attribute of {op} given twice", "each attribute once")
        name = tokens.take("word", f"attributes of {op}", "name=value")
        tokens.expect("=", f"value of attribute {name}")
        start = tokens.start
        attrs[name] = _attr(tokens, name)
        places[name] = tokens.since(start)
    return attrs, places


def _attr(tokens: Tokens, name: str) -> Attr:
    if tokens.kind == "number":
        return _number(tokens, name)
    if tokens.kind == "string":
        return tokens.name(name)
    if tokens.accept("true"):
        return True
    if tokens.accept("false"):
        return False
    if tokens.accept("affine"):
        tokens.expect("(", f"attribute {name}")
        number = tokens.integer(f"attribute {name}")
        tokens.expect(")", f"attribute {name}")
        return Affine(number)
    if tokens.kind == "word" and KINDS.get(name) is OFFSET:
        return _affine(tokens, name)
    if tokens.kind == "word":
        return tokens.advance()
    if tokens.text == "-":
        raise tokens.fail(f"value of attribute {name}", "a finite number; what masks is -1e30")
    tokens.expect("[", f"value of attribute {name}")
    return _list(tokens, name)


def _list(tokens: Tokens, name: str) -> tuple[int, ...] | tuple[str, ...]:
    words: list[str] = []
    numbers: list[int] = []
    for _ in tokens.listed("]", f"attribute {name}"):
        if tokens.kind == "number" and not words:
            numbers.append(tokens.integer(f"attribute {name}"))
        elif tokens.kind in ("word", "string") and not numbers:
            words.append(tokens.name(f"attribute {name}"))
        else:
            raise tokens.fail(f"attribute {name}", "a list of integers, or one of names")
    return tuple(words) if words else tuple(numbers)


def _number(tokens: Tokens, name: str) -> Attr:
    start, text = tokens.start, tokens.text
    try:
        if "/" in text or "." in text or "e" in text.lower():
            tokens.advance()
            return Fraction(text) if "/" in text else Fraction(float(text))
        first = tokens.integer(f"attribute {name}")
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, MalformedError):
            raise
        raise MalformedError(
            f"attribute {name}", where=tokens.place(start), expected="a number", got=text[:40]
        ) from None
    if tokens.text not in ("*", "+") and not tokens.text.startswith("-"):
        return first
    return _affine(tokens, name, first)


def _affine(tokens: Tokens, name: str, first: int | None = None) -> Affine:
    """A sum of numbers and of multiples of coordinates: `4*tp+cp+1`."""
    coeffs: dict[str, int] = {}
    const, number = 0, first
    while True:
        if number is None and tokens.kind == "number":
            number = tokens.integer(f"attribute {name}")
        if number is None or tokens.accept("*"):
            mesh_dim = tokens.name(f"a mesh dim in attribute {name}")
            coeffs[mesh_dim] = coeffs.get(mesh_dim, 0) + (1 if number is None else number)
        else:
            const += number
        if not tokens.accept("+") and not tokens.text.startswith("-"):
            return Affine.of(const, coeffs)
        number = None
