"""Puts a program together from untrusted parts: what both readers (text and JSON) share.

Every part is checked as it comes, and the result is well formed: values defined once and before
their uses, ops and attributes that exist, types inferred through the registry. A program in memory
is read anew in the same way, whoever built it.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from shardproof.verifier.kernel.program.errors import IRError, MalformedError
from shardproof.verifier.kernel.program.program import (
    IN_ORDER,
    INPUT_ROLES,
    OUTPUT_ROLES,
    Input,
    Node,
    Output,
    Program,
    Timing,
)
from shardproof.verifier.kernel.program.registry import REGISTRY, infer_types, lookup
from shardproof.verifier.kernel.program.types import (
    DTYPES,
    KINDS,
    Attr,
    Mesh,
    Source,
    TensorType,
    stray_mesh_dim,
)
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, ranks_where
from shardproof.verifier.text.digest import digest

MAX_DEPTH = 32
"""How deep scans may nest."""


def near(word: str, known: Iterable[str]) -> str:
    """A hint with the known words closest to `word`."""
    found = difflib.get_close_matches(word, list(known), 3)
    return f"did you mean {' or '.join(found)}?" if found else ""


def mesh_of(dims: Sequence[tuple[str, int]]) -> Mesh:
    """Raises MalformedError: a mesh dim named twice, or of size 0 or less."""
    seen: set[str] = set()
    for name, size in dims:
        if name in seen:
            raise MalformedError(
                f"mesh dim {name} is named twice", hint="give each mesh dim one size"
            )
        if size < 1:
            raise MalformedError(
                f"mesh dim {name} has no ranks", expected="a size of 1 or more", got=str(size)
            )
        seen.add(name)
    return Mesh(tuple(dims))


def tensor_type(dtype: str, shape: Sequence[int]) -> TensorType:
    """Raises MalformedError: an unknown dtype, a negative extent."""
    if dtype not in DTYPES:
        raise MalformedError(f"unknown dtype {dtype}", expected=f"one of {', '.join(DTYPES)}")
    if any(n < 0 for n in shape):
        raise MalformedError("negative extent", expected="0 or more", got=str(min(shape)))
    return TensorType(tuple(shape), dtype)


class Assembly:
    """A program under construction. Every method raises MalformedError."""

    def __init__(self, name: str, mesh: Mesh, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise MalformedError("scans nest too deeply", expected=f"at most {MAX_DEPTH} levels")
        self.name, self.mesh, self.depth = name, mesh, depth
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.outputs: list[Output] = []
        self.types: dict[str, TensorType] = {}

    def define(self, name: str, type: TensorType) -> None:
        if name in self.types:
            raise MalformedError(f"%{name} is defined twice", hint="each value has one definition")
        self.types[name] = type

    def read(self, name: str) -> TensorType:
        try:
            return self.types[name]
        except KeyError:
            raise MalformedError(
                f"%{name} is not defined here",
                expected="a value defined above",
                hint=near(name, self.types),
            ) from None

    def where(self, chosen: Sequence[tuple[str, Sequence[int]]]) -> Where:
        """The ranks that `on(...)` names."""
        names = [name for name, _ in chosen]
        if len(set(names)) != len(names):
            raise MalformedError("a mesh dim is named twice in on(...)")
        try:
            return ranks_where(self.mesh, dict(chosen))
        except ValueError as error:
            raise MalformedError(f"on(...): {error}") from None

    def input(
        self, name: str, type: TensorType, role: str, path: str, where: Where = EVERYWHERE
    ) -> None:
        if role not in INPUT_ROLES:
            raise MalformedError(
                f"unknown role {role}", expected=f"one of {', '.join(INPUT_ROLES)}"
            )
        self.define(name, type)
        self.inputs.append(Input(name, type, role, path, where))

    def output(self, value: str, role: str, path: str) -> None:
        if role not in OUTPUT_ROLES:
            raise MalformedError(
                f"unknown role {role}", expected=f"one of {', '.join(OUTPUT_ROLES)}"
            )
        self.read(value)
        self.outputs.append(Output(value, role, path))

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attrs: Mapping[str, Attr],
        source: Source,
        body: Program | None,
        written: Sequence[TensorType] | None,
        where: Where = EVERYWHERE,
        timing: Timing = IN_ORDER,
    ) -> None:
        """Append one op application; `written` are the types the text claims for the results."""
        operands = [self.read(v) for v in inputs]
        self._check_attrs(op, attrs)
        types = self._infer(op, operands, dict(attrs), body)
        if len(types) != len(outputs):
            raise MalformedError(
                f"{op} has {_count(len(types), 'result')}", got=_count(len(outputs), "name")
            )
        if written is not None and tuple(written) != types:
            raise MalformedError(
                f"type of the result of {op} does not match its operands "
                f"({', '.join(map(str, operands))})",
                expected=", ".join(map(str, types)),
                got=", ".join(map(str, written)),
            )
        for name, type in zip(outputs, types, strict=True):
            self.define(name, type)
        self.nodes.append(
            Node(op, tuple(inputs), tuple(outputs), dict(attrs), source, body, where, timing)
        )

    def build(self) -> Program:
        return Program(
            self.name,
            tuple(self.inputs),
            tuple(self.nodes),
            tuple(self.outputs),
            self.types,
            self.mesh,
        )

    def _check_attrs(self, op: str, attrs: Mapping[str, Attr]) -> None:
        try:
            declared = lookup(op)
        except IRError:
            hint = near(op, REGISTRY) or "see docs/ops.md"
            raise MalformedError(f"unknown op {op}", hint=hint) from None
        for name, value in attrs.items():
            if name not in declared.attrs:
                has = ", ".join(declared.attrs) or "none"
                raise MalformedError(f"op {op} has no attribute {name}", expected=f"one of: {has}")
            kind = KINDS[name]
            if not kind.holds(value):
                raise MalformedError(
                    f"attribute {name} of {op}", expected=kind.says, got=repr(value)
                )
            stray = stray_mesh_dim(name, value, self.mesh)
            if stray is not None:
                raise MalformedError(
                    f"attribute {name} of {op} names the mesh dim {stray}",
                    expected=f"a dim of the mesh ({self.mesh or 'none: a one-device program'})",
                )

    def _infer(
        self, op: str, operands: list[TensorType], attrs: dict[str, Attr], body: Program | None
    ) -> tuple[TensorType, ...]:
        if body is not None and lookup(op).kind != "control":
            raise MalformedError(f"op {op} takes no body")
        try:
            types = infer_types(op, operands, attrs, self.mesh, body)
        except IRError as error:
            raise MalformedError(str(error)) from None
        if any(n < 0 for t in types for n in t.shape):
            raise MalformedError(
                f"result of {op} has a negative extent", got=", ".join(map(str, types))
            )
        return types


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def well_formed(
    program: Program, depth: int = 0, bodies: dict[int, Program] | None = None
) -> Program:
    """The program with types inferred anew. Raises IRError where it is not well formed.

    A body that several nodes share is read once, and shared again.
    """
    bodies = {} if bodies is None else bodies
    parts = Assembly(program.name, mesh_of(program.mesh.dims), depth)
    for item in program.inputs:
        kind = tensor_type(item.type.dtype, item.type.shape)
        parts.input(item.name, kind, item.role, item.path, parts.where(item.where))
    for node in program.nodes:
        body = None
        if node.body is not None:
            body = bodies.get(id(node.body)) or well_formed(node.body, depth + 1, bodies)
            bodies[id(node.body)] = body
        if body is not None and body.mesh != program.mesh:
            raise IRError(f"{program.name}: the body of {node.op} has another mesh")
        where = parts.where(node.where)
        try:
            parts.node(
                node.op,
                node.inputs,
                node.outputs,
                node.attrs,
                node.source,
                body,
                None,
                where,
                node.timing,
            )
        except MalformedError as error:
            raise error.at(f"{node.source}  %{node.outputs[0]} = {node.op}".strip()) from None
    for out in program.outputs:
        parts.output(out.value, out.role, out.path)
    return parts.build()


def shared(program: Program, bodies: dict[str, Program] | None = None) -> Program:
    """The program with equal bodies of repeated blocks made one object.

    What is done once for each body is then done once for equal ones, though they were read apart.
    """
    bodies = {} if bodies is None else bodies
    seen: dict[int, Program] = {}
    nodes: list[Node] = []
    for node in program.nodes:
        if node.body is not None:
            body = seen.get(id(node.body))
            if body is None:
                inner = shared(node.body, bodies)
                body = bodies.setdefault(_key(inner), inner)
                seen[id(node.body)] = body
            node = replace(node, body=body)
        nodes.append(node)
    return replace(program, nodes=tuple(nodes))


def _key(program: Program) -> str:
    """Equal programs, and places in the source, have one key; one that lacks types has its own."""
    if any(v not in scope.types for scope, node in program.walk() for v in node.outputs):
        return f"untyped {id(program)}"
    places = [repr(node.source) for _, node in program.walk()]
    return digest(program) + "\n".join(places)
