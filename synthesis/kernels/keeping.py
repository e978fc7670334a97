"""What a training step keeps from forward to backward.

Backward products are given their operands as they were; what chains of backward read is computed
again from kept values by elementwise ops where it can be, as a compiler does.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from shardproof.synthesis.kernels.graph import Graph, Scope, Value, chained
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.ops.classes import VIEWS


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
