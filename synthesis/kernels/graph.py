"""A program with its repeated blocks as one graph: who reads a value, what it is a view of, what a
training step keeps from forward to backward.

Backward products are given their operands as they were; what chains of backward read is computed
again from kept values by elementwise ops where it can be, as a compiler does.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

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


@dataclass(frozen=True)
class Kept:
    """Values that are kept, and where each value of the forward pass is computed from again."""

    values: Mapping[Value, None]
    source: Mapping[Value, Value]


def keep(graph: Graph, unmade: Collection[Value]) -> Kept:
    """The values of the forward pass that backward is given."""
    values: dict[Value, None] = {}
    source: dict[Value, Value] = {}
    for scope in graph.scopes.values():
        if graph.runs_forward(scope.name):
            wanted = _wanted(graph, scope, unmade)
            sweep = _Sweep(scope, wanted)
            sweep.run()
            values |= {(scope.name, v): None for v in sweep.kept}
            source |= {(scope.name, v): (scope.name, s) for v, s in sweep.source.items()}
    return Kept(values, source)


def _wanted(graph: Graph, scope: Scope, unmade: Collection[Value]) -> dict[str, bool]:
    """Owners of what backward reads, and whether it reads them as they are."""
    out: dict[str, bool] = {}
    for name in scope.program.types:
        value = (scope.name, name)
        saved = graph.saved.get(value)
        stacked = saved is not None and saved[0] != scope.name and not scope.name
        made = scope.producer.get(name)
        if value in unmade or stacked or (made is not None and value not in graph.forward):
            continue
        use = _use(graph, value)
        if use is not None:
            owner = scope.owner(name)
            out[owner] = out.get(owner, False) or use
    return out


def _use(graph: Graph, value: Value) -> bool | None:
    """True where a backward op that is no chain reads a value, False where only chains do."""
    out: bool | None = None
    stack = [value]
    while stack:
        at = stack.pop()
        for reader in graph.readers.get(at, ()):
            result, node = reader.result, reader.node
            if node is None:
                # Into a backward body, or out of a forward one as a stacked result.
                inward = result[0] != "" and not graph.runs_forward(result[0])
                outward = result[0] == "" and result in graph.saved
                if inward or outward:
                    stack.append(result)
            elif result in graph.forward:
                continue
            elif node.op in VIEWS:
                stack.append(result)
            elif not chained(node):
                return True
            else:
                out = False
    return out


class _Sweep:
    """One forward scope in program order: what is at hand in backward at each point."""

    def __init__(self, scope: Scope, wanted: Mapping[str, bool]) -> None:
        self.scope = scope
        self.wanted = wanted
        self.kept: dict[str, None] = {}
        self.given: set[str] = set()
        """At hand without being kept: inputs, constants and what is made of them."""
        self.source: dict[str, str] = {}
        self.nodes = scope.program.nodes
        self.readers: dict[str, list[int]] = {}
        for k, node in enumerate(self.nodes):
            for v in node.inputs if node.body is None and chained(node) else ():
                self.readers.setdefault(v, []).append(k)

    def run(self) -> None:
        for item in self.scope.program.inputs:
            if item.role != "carry":
                self.given.add(item.name)
            elif self.wanted.get(item.name):
                self._take(item.name)
        for node in self.scope.program.nodes:
            for name in node.outputs:
                if self.wanted.get(name):
                    self._keep(self._moved(name))
                    continue
                if node.body is None and chained(node):
                    self._derive(name)
                if name in self.wanted and not self._ready(name):
                    self._choose(name)

    def _ready(self, name: str) -> bool:
        return name in self.given or name in self.source

    def _take(self, name: str) -> None:
        if name not in self.given:
            self.kept[name] = None
            self.source[name] = name

    def _keep(self, names: Iterable[str]) -> None:
        """Keep values, and mark what chains can then compute."""
        due: list[int] = []
        for name in names:
            self._take(name)
            due += self.readers.get(name, ())
        heapify(due)
        while due:
            made = self.nodes[heappop(due)].outputs[0]
            if not self._ready(made):
                self._derive(made)
                for k in self.readers.get(made, ()) if self._ready(made) else ():
                    heappush(due, k)

    def _moved(self, name: str) -> list[str]:
        """What a value is put together of where that is smaller: the windows of a convolution
        overlap."""
        seen, found, stack = set[str](), list[str](), [name]
        while stack:
            at = stack.pop()
            node = self.scope.producer.get(at)
            if at in seen:
                continue
            seen.add(at)
            if node is None or node.body is not None or lookup(node.op).kind != "view":
                found.append(at)
            else:
                stack += node.inputs
        return found if sum(map(self.scope.bytes, found)) < self.scope.bytes(name) else [name]

    def _derive(self, name: str) -> None:
        """Mark what chains can compute of what is at hand."""
        node = self.scope.producer[name]
        if not all(self._ready(v) for v in node.inputs):
            return
        sources = [self.source[v] for v in node.inputs if v in self.source]
        if sources:
            self.source[name] = max(sources, key=self.scope.bytes)
        else:
            self.given.add(name)

    def _choose(self, name: str) -> None:
        """Keep a value, or what chains compute it from where that is smaller."""
        least, roots = self._smallest(name), self._roots(name)
        if sum(map(self.scope.bytes, roots)) >= self.scope.bytes(least):
            roots = [least]
        self._keep(roots)

    def _smallest(self, name: str) -> str:
        """The smallest value on the way down to a node that lacks more than one operand."""
        least = name
        while True:
            node = self.scope.producer.get(name)
            if node is None or node.body is not None or not chained(node):
                return least
            missing = [v for v in dict.fromkeys(node.inputs) if not self._ready(v)]
            if len(missing) != 1:
                return least
            name = missing[0]
            if self.scope.bytes(name) < self.scope.bytes(least):
                least = name

    def _roots(self, name: str) -> list[str]:
        """What is not at hand and no chain computes, of all that a value is computed from."""
        seen: set[str] = set()
        roots: list[str] = []
        stack = [name]
        while stack:
            at = stack.pop()
            if at in seen or self._ready(at):
                continue
            seen.add(at)
            node = self.scope.producer.get(at)
            if node is None or node.body is not None or not chained(node):
                roots.append(at)
            else:
                stack += node.inputs
        return roots
