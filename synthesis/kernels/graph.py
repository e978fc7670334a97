"""A program with its repeated blocks as one graph: who reads a value, what it is a view of."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import ALONG, VIEWS

Value = tuple[str, str]
"""(first result of the enclosing scan or '', name)."""
CHAINED = frozenset({"map", "reduce", "view", "create"})


def chained(node: Node) -> bool:
    """Whether a node can be part of an elementwise chain."""
    return lookup(node.op).kind in CHAINED or node.op in ALONG


@dataclass
class Scope:
    """The program, or the body of a scan that a step runs `times` times."""

    name: str
    program: Program
    times: int
    producer: dict[str, Node]

    def owner(self, name: str) -> str:
        """What a value is a view of."""
        node = self.producer.get(name)
        while node is not None and node.op in VIEWS:
            name = node.inputs[0]
            node = self.producer.get(name)
        return name

    def bytes(self, name: str) -> int:
        return self.program.types[name].nbytes


@dataclass(frozen=True, slots=True)
class Reader:
    """What reads a value: a node with its first result, or the same value in another scope."""

    node: Node | None
    result: Value


def scopes(program: Program, name: str = "", times: int = 1) -> Iterator[Scope]:
    """The program, then bodies of its scans; the name is the first result of the scan."""
    yield Scope(name, program, times, program.producers())
    for node in program.nodes:
        if node.body is not None:
            length = node.number("length")
            yield from scopes(node.body, node.outputs[0], times * length)


@dataclass
class Graph:
    """Scopes, readers, and classes of values that elementwise ops and views of one size tie."""

    program: Program
    scopes: dict[str, Scope] = field(init=False)
    forward: set[Value] = field(init=False)
    readers: dict[Value, list[Reader]] = field(default_factory=dict[Value, list[Reader]])
    saved: dict[Value, Value] = field(default_factory=dict[Value, Value])
    """A stacked result of a scan, or an input of a body -> what it is outside or inside."""
    ends: set[Value] = field(default_factory=set[Value])
    """Outputs of the program, and carries of its scans."""
    _parent: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def __post_init__(self) -> None:
        self.scopes = {s.name: s for s in scopes(self.program)}
        self.forward = forward_values(self.program)
        self.ends |= {("", o.value) for o in self.program.outputs}
        for scope in self.scopes.values():
            for node in scope.program.nodes:
                if node.body is None:
                    self._tie(scope, node)
                else:
                    self._tie_scan(scope, node, node.body)

    def nodes(self) -> Iterator[tuple[Scope, Node]]:
        """Every node but scans."""
        for scope in self.scopes.values():
            for node in scope.program.nodes:
                if node.body is None:
                    yield scope, node

    def values(self) -> Iterator[Value]:
        for scope in self.scopes.values():
            for name in scope.program.types:
                yield scope.name, name

    def runs_forward(self, scope: str) -> bool:
        """Whether a scope belongs to the forward pass; the program itself does."""
        nodes = self.scopes[scope].program.nodes
        return not scope or bool(nodes and (scope, nodes[0].outputs[0]) in self.forward)

    def group(self, value: Value) -> Value:
        """The representative of a value's class."""
        path: list[Value] = []
        while value in self._parent:
            path.append(value)
            value = self._parent[value]
        self._parent |= dict.fromkeys(path, value)
        return value

    def _join(self, a: Value, b: Value) -> None:
        a, b = self.group(a), self.group(b)
        if a != b:
            self._parent[a] = b

    def _tie(self, scope: Scope, node: Node) -> None:
        types, out = scope.program.types, node.outputs[0]
        for name in dict.fromkeys(node.inputs):
            reader = Reader(node, (scope.name, out))
            self.readers.setdefault((scope.name, name), []).append(reader)
            if lookup(node.op).kind in ("map", "view") and types[name].size == types[out].size:
                self._join((scope.name, name), (scope.name, out))

    def _tie_scan(self, scope: Scope, node: Node, body: Program) -> None:
        inner = node.outputs[0]
        carried = scan_parts(node.attrs, len(node.inputs))[0].stop
        for name, item in zip(node.inputs, body.inputs, strict=True):
            self._alias((scope.name, name), (inner, item.name))
            self.saved[inner, item.name] = (scope.name, name)
        for k, (out, name) in enumerate(zip(body.outputs, node.outputs, strict=True)):
            self._alias((inner, out.value), (scope.name, name))
            if k < carried:
                self._join((inner, out.value), (inner, body.inputs[k].name))
                self.ends.add((inner, out.value))
            else:
                self.saved[scope.name, name] = (inner, out.value)

    def _alias(self, before: Value, after: Value) -> None:
        self.readers.setdefault(before, []).append(Reader(None, after))
        self._join(before, after)
