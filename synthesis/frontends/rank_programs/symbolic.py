"""The program of one class: its text with mesh dims in place of ranks, parsed, step by step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from shardproof.synthesis.frontends.rank_programs import wording
from shardproof.synthesis.frontends.rank_programs.classes import CHUNKS, Line, TextClass, chunks
from shardproof.synthesis.frontends.rank_programs.form import HOLE, keys
from shardproof.synthesis.frontends.rank_programs.groups import Grid
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.program import (
    IN_ORDER,
    INPUT_ROLES,
    Input,
    Node,
    Output,
    Program,
    Timing,
)
from shardproof.verifier.kernel.program.types import NOWHERE, Affine, Attr, Source, named_mesh_dims
from shardproof.verifier.text.parser import parse_text

ROOTED = ("broadcast", "scatter")
"""Movements that ranks other than the root may call without an operand."""


class LineError(Exception):
    """A line of a class that is no statement, or that no program can say."""

    def __init__(self, line: int, error: MalformedError, kind: str = "malformed") -> None:
        super().__init__(str(error))
        self.line, self.error, self.kind = line, error, kind


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the ranks of a class do, in order."""

    kind: str
    """`input`, `local`, `join`, `collective`, `send`, `recv` or `return`."""
    line: int
    """Index of its line in the class."""
    node: Node | None = None
    input: Input | None = None
    peer: tuple[str, int, int] | None = None
    """Of a message: mesh dim, own coordinate, the peer's."""
    tag: int | None = None
    operand: str | None = None
    """Of a message that is sent, of a collective: what this rank gives to it."""
    dims: tuple[str, ...] = ()
    """Of a collective: all the mesh dims over which it talks."""
    outputs: tuple[Output, ...] = ()
    timing: Timing = IN_ORDER
    """Of a message."""


@dataclass
class ClassProgram:
    """The steps of a class, with the types of its values."""

    owner: TextClass
    program: Program
    steps: list[Step] = field(default_factory=list[Step])
    file: str = ""
    first: int = 0
    """The line of the file on which the text of its first rank starts."""

    def place(self, line: int) -> Source:
        """Where a line of its first rank stands."""
        return Source(self.file, self.first + int(self.owner.places[0][line]))


@dataclass
class _Said:
    """What a line of text was before it was put into the words of the IR."""

    index: int
    kind: str
    line: Line
    op: str = ""


def parsed(owner: TextClass, name: str, grid: Grid, file: str, first: int) -> ClassProgram:
    """The program of a class.

    Raises:
        LineError: a line that is no statement.
    """
    said: list[_Said] = []
    text = [f"program rank mesh({', '.join(f'{n}={s}' for n, s in grid.mesh.dims)})"]
    depth = 0
    for index, line in enumerate(owner.lines):
        try:
            if "on" in line.tokens and "(" in line.tokens[line.tokens.index("on") + 1 :][:1]:
                raise MalformedError("a rank's program says nothing of other ranks: on(...)")
            if "*" in line.tokens:
                raise MalformedError("a rank's attributes are plain numbers", got="a product")
            op = _op(line)
            words, kind = _words(line, op, grid, depth)
        except MalformedError as error:
            kind = "unsupported" if getattr(error, "unsupported", False) else "malformed"
            raise LineError(index, error, kind) from None
        text.append(" ".join(words))
        closes, opens = line.tokens[0] == "}", line.tokens[-1] == "{"
        if depth == 0 and not closes:
            said.append(_Said(index, kind, line, op))
        depth += opens - closes
    try:
        program = parse_text("\n".join(text), "")
    except MalformedError as error:
        at = _line_of(error, len(owner.lines))
        line = owner.lines[at]
        chunk = _op(line) in CHUNKS and any(isinstance(n, Affine) for n in line.numbers)
        raise LineError(at, error, "unsupported" if chunk else "malformed") from None
    out = ClassProgram(owner, program, file=file, first=first)
    out.steps += _steps(said, out, grid)
    return out


def _line_of(error: MalformedError, count: int) -> int:
    """The index of the line that an error names (the first line of the text is the header)."""
    parts = error.where.split(":")
    at = int(parts[1]) - 2 if len(parts) > 1 and parts[1].isdecimal() else 0
    return min(max(at, 0), count - 1)


def _op(line: Line) -> str:
    tokens = line.tokens
    if tokens[0] == "send":
        return "send"
    return tokens[tokens.index("=") + 1] if "=" in tokens[:-1] and tokens[0][0] == "%" else ""


def _words(line: Line, op: str, grid: Grid, depth: int) -> tuple[list[str], str]:
    """The line in the words of the IR, and what kind of step it is."""
    tokens, names = line.tokens, keys(line.tokens)
    words = [str(n) for n in line.numbers]
    if op in ("send", "recv"):
        _outermost(depth, op)
        (wording.sent if op == "send" else wording.received)(tokens)
        if line.peer is None:
            raise _other(f"the peer of a {op} differs in several mesh dims, or in none", line)
        _timing(tokens)
        said = ["#", tokens[1]] if op == "send" else ["const", tokens[0], ":", *_type(line)]
        return said, op
    if op in ROOTED and not tokens[tokens.index("=") + 2].startswith("%"):
        _outermost(depth, op)
        wording.rootless(tokens, op)
        _timing(tokens)
        return ["const", tokens[0], ":", *_type(line)], "collective"
    if "to" in names or "from" in names:
        raise MalformedError(f"{op or 'this line'} has a peer", expected="send or recv")
    if any(isinstance(n, Affine) for n in line.numbers) and op in CHUNKS:
        return _chunk(line, op, names, grid), "local"
    out: list[str] = []
    rest = iter(zip(words, names, strict=True))
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if token == "ranks" and i + 1 < len(tokens) and tokens[i + 1] == "=":
            end = _end(tokens, i)
            if line.group is None:
                raise _other("the communicator is not a group of mesh dims in rank order", line)
            dims = _named(line.group, grid)
            if not dims:
                wording.alone(tokens, dict(zip(names, line.numbers, strict=True)), op)
                kind = [":", *_type(line)] if ":" in tokens[tokens.index("}") :] else []
                return [tokens[0], "=", "only", tokens[3], *kind], "local"
            out.append(f"mesh_dim = [ {' , '.join(dims)} ]")
            if len(dims) == 1:
                out[-1] = f"mesh_dim = {dims[0]}"
            for _ in range(tokens[i:end].count(HOLE)):
                next(rest)
            i = end
            continue
        out.append(next(rest)[0] if token == HOLE else token)
        i += 1
    if tokens[0] in INPUT_ROLES:
        return out, "input"
    if tokens[0] == "return":
        return out, "return"
    if op == "merge":
        if depth == 0 and tokens.count("%") == 0 and len(_operands(tokens)) == 1:
            return out, "join"
        raise MalformedError("a rank merges one value of its own", expected="%y = merge %x")
    return out, "local"


def _outermost(depth: int, what: str) -> None:
    if depth:
        raise _unsupported(MalformedError(f"{what} inside a repeated block"))


def _unsupported(error: MalformedError) -> MalformedError:
    error.unsupported = True  # pyright: ignore[reportAttributeAccessIssue]
    return error


def _other(what: str, line: Line) -> MalformedError:
    pairs = zip(line.numbers, keys(line.tokens), strict=True)
    numbers = [n for n, k in pairs if k in ("ranks", "to", "from")]
    return _unsupported(MalformedError(what, got=str(numbers[0] if len(numbers) == 1 else numbers)))


def _type(line: Line) -> list[str]:
    return _filled(line, len(line.tokens) - line.tokens[::-1].index(":"))


def _filled(line: Line, start: int) -> list[str]:
    """The tokens from a place on, with their numbers."""
    rest = iter(line.numbers[line.tokens[:start].count(HOLE) :])
    return [str(next(rest)) if t == HOLE else t for t in line.tokens[start:]]


def _end(tokens: tuple[str, ...], start: int) -> int:
    try:
        return tokens.index("]", start) + 1
    except ValueError:
        raise MalformedError("a list of ranks does not end", expected="ranks=[0, 1]") from None


def _named(group: tuple[str, ...], grid: Grid) -> tuple[str, ...]:
    """The mesh dims of a communicator; where it is one rank, a mesh dim of size 1."""
    return group or tuple(n for n, size in grid.mesh.dims if size == 1)[:1]


def _operands(tokens: tuple[str, ...]) -> list[str]:
    at = tokens.index("=") + 2
    out: list[str] = []
    while at < len(tokens) and (tokens[at].startswith("%") or tokens[at] == ","):
        out.append(tokens[at])
        at += 1
    return out


def _chunk(line: Line, op: str, names: tuple[str, ...], grid: Grid) -> list[str]:
    """A slice that takes chunks in turn, as the chunk of a mesh dim; a pad that puts them back."""
    wording.cut(line.tokens, op, CHUNKS[op])
    named = dict(zip(names, line.numbers, strict=False))
    first, last = (named[end] for end in CHUNKS[op])
    dims, _ = chunks(op, first, last, grid)
    if not dims or named.get("step", 1) != 1 or "dim" not in named:
        raise _other(f"a {op} that differs between ranks, but not by chunks in turn", line)
    tokens = line.tokens
    at = tokens.index("=")
    tail = ["{", f"mesh_dim = [ {' , '.join(dims)} ]", ",", f"dim = {named['dim']}", "}"]
    after = _filled(line, tokens.index("}") + 1)
    return [*tokens[: at + 1], f"shard_{op}", *_operands(tokens), *tail, *after]


def _steps(said: Sequence[_Said], owner: ClassProgram, grid: Grid) -> Iterator[Step]:
    program = owner.program
    inputs, nodes = iter(program.inputs), iter(program.nodes)
    for item in said:
        if item.kind == "send":
            yield _message(item, "send", operand=_bare(item.line.tokens[1]))
            continue
        if item.kind == "return":
            yield Step("return", item.index, outputs=program.outputs)
            continue
        if item.kind in ("recv", "input") or (item.kind == "collective"):
            found = next(inputs, None)
            if found is None:
                raise LineError(item.index, MalformedError("one statement a line"))
            if item.kind == "recv":
                yield replace(_message(item, "recv"), input=found)
            elif item.kind == "input":
                yield Step("input", item.index, input=found)
            else:
                yield _without_operand(item, found, grid)
            continue
        node = next(nodes, None)
        if node is None or _bare(item.line.tokens[0]) != node.outputs[0]:
            raise LineError(item.index, MalformedError("one statement a line"))
        _whole_chunk(owner.owner, item.index, node, program, grid)
        for line, child, body in inside(owner.owner, item.index, node):
            _whole_chunk(owner.owner, line, child, body, grid)
        if node.source == NOWHERE:
            node = replace(node, source=owner.place(item.index))
        yield step_of(item.index, node, join=item.kind == "join")
    if next(nodes, None) is not None or next(inputs, None) is not None:
        raise LineError(0, MalformedError("one statement a line"))


def step_of(line: int, node: Node, *, join: bool = False) -> Step:
    """The step that a node is."""
    if join:
        return Step("join", line, node)
    dims = _talks(node)
    if not dims:
        return Step("local", line, node)
    return Step("collective", line, node, operand=node.inputs[0], dims=dims)


def inside(owner: TextClass, line: int, node: Node) -> Iterator[tuple[int, Node, Program]]:
    """The nodes of a repeated block, and of those in it: the line of each, and the body it is in.

    Raises:
        LineError: a line that holds two of them.
    """
    body = node.body
    if body is None:
        return
    at = line + 1 + len(body.inputs)
    for child in body.nodes:
        words = owner.lines[at].tokens if at < len(owner.lines) else ("",)
        if _bare(words[0]) != child.outputs[0]:
            raise LineError(min(at, len(owner.lines) - 1), MalformedError("one statement a line"))
        yield at, child, body
        yield from inside(owner, at, child)
        at += 1 + block_lines(child)


def block_lines(node: Node) -> int:
    """How many lines a repeated block has after its first one."""
    if node.body is None:
        return 0
    inner = sum(1 + block_lines(child) for child in node.body.nodes)
    return len(node.body.inputs) + inner + 2


def _whole_chunk(owner: TextClass, line: int, node: Node, scope: Program, grid: Grid) -> None:
    """Raises LineError where what became chunks of mesh dims leaves a rest."""
    said = owner.lines[line]
    op = node.op.removeprefix("shard_")
    if op == node.op or not any(isinstance(n, Affine) for n in said.numbers):
        return
    named = dict(zip(keys(said.tokens), said.numbers, strict=False))
    first, last = (named[end] for end in CHUNKS[op])
    _, step = chunks(op, first, last, grid)
    chunk = node.inputs[0] if op == "pad" else node.outputs[0]
    if scope.types[chunk].shape[node.number("dim")] != step:
        what = f"a {op} that differs between ranks, but leaves a rest"
        raise LineError(line, MalformedError(what, got=str(step)), "unsupported")


def _talks(node: Node) -> tuple[str, ...]:
    """All mesh dims over which a node, or the body of a repeated block, talks."""
    if node.body is None:
        communicates = "mesh_dim" in lookup(node.op).attrs
        return named_mesh_dims("mesh_dim", node.attrs["mesh_dim"]) if communicates else ()
    out = [d for child in node.body.nodes for d in _talks(child)]
    return tuple(dict.fromkeys(out))


def _message(item: _Said, kind: str, operand: str | None = None) -> Step:
    named = dict(zip(keys(item.line.tokens), item.line.numbers, strict=False))
    tag = named.get("tag")
    assert not isinstance(tag, Affine)
    timing = _timing(item.line.tokens)
    return Step(kind, item.index, peer=item.line.peer, tag=tag, operand=operand, timing=timing)


def _timing(tokens: tuple[str, ...]) -> Timing:
    """`async stream(NAME) into(BUFFER)`, each optional, in this order."""
    at = tokens.index("}") + 1 if "}" in tokens else len(tokens)
    asynchronous = tokens[at : at + 1] == ("async",)
    at += asynchronous
    names = {"stream": "", "into": ""}
    for word in names:
        if tokens[at : at + 2] == (word, "(") and tokens[at + 3 : at + 4] == (")",):
            names[word] = tokens[at + 2].strip('"')
            at += 4
    if at < len(tokens) and tokens[at] != ":":
        raise MalformedError("a message", expected="nothing", got=" ".join(tokens[at:]))
    if not asynchronous and not any(names.values()):
        return IN_ORDER
    return Timing(asynchronous, names["stream"], names["into"])


def _without_operand(item: _Said, found: Input, grid: Grid) -> Step:
    tokens = item.line.tokens
    named = dict(zip(keys(tokens), item.line.numbers, strict=False))
    dims = _named(item.line.group or (), grid)
    attrs: dict[str, Attr] = {"mesh_dim": dims[0] if dims else ""}
    attrs |= {k: v for k, v in named.items() if k in lookup(item.op).attrs and k != "mesh_dim"}
    node = Node(item.op, (), (found.name,), attrs, timing=_timing(tokens))
    if item.line.group is None or len(dims) != 1:
        raise LineError(item.index, MalformedError(f"{item.op} over one mesh dim"), "unsupported")
    return Step("collective", item.index, node, input=found, dims=dims)


def _bare(token: str) -> str:
    if not token.startswith('%"'):
        return token[1:]
    import json

    return str(json.loads(token[1:], strict=False))
