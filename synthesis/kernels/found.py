"""The kernels of a program: attention, grouped experts, chains."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from shardproof.synthesis.kernels.graph import Graph, Kept, Scope, Value, chained, keep
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import ORDERS, VIEWS

Reads = dict[Value, tuple[float, ...]]


def traffic(graph: Graph, unmade: Collection[Value], kept: Kept) -> tuple[Reads, frozenset[Value]]:
    """What nodes read of their operands, and the results that are written."""
    reads: Reads = {}
    writes: set[Value] = set()
    for scope in graph.scopes.values():
        chains = _Chains(graph, scope, unmade, kept)
        for node in scope.program.nodes:
            value = (scope.name, node.outputs[0])
            if node.body is not None or value in unmade or lookup(node.op).kind == "einsum":
                continue
            if lookup(node.op).kind in ("view", "create"):
                continue
            reads[value] = chains.reads(node)
            if chains.written(node):
                writes.add(value)
    return reads, frozenset(writes)


@dataclass
class _Chains:
    graph: Graph
    scope: Scope
    unmade: Collection[Value]
    kept: Kept
    chain: dict[str, int] = field(default_factory=dict[str, int])
    """Values made in a chain, by its number."""
    taken: dict[tuple[int, Value], int] = field(default_factory=dict[tuple[int, Value], int])
    """Bytes of a value that a chain has read so far."""

    def __post_init__(self) -> None:
        """Number chains: nodes that are tied, with as many products before them, are one."""
        level = self._levels()
        parent: list[int] = []

        def root(number: int) -> int:
            while parent[number] != number:
                number = parent[number]
            return number

        for node in self.scope.program.nodes:
            out = node.outputs[0]
            if node.body is not None or not chained(node) or (self.scope.name, out) in self.unmade:
                continue
            number = len(parent)
            parent.append(number)
            for v in node.inputs:
                if v in self.chain and level[v] == level[out]:
                    parent[root(self.chain[v])] = number
            self.chain[out] = number
        self.chain = {v: root(n) for v, n in self.chain.items()}

    def _levels(self) -> dict[str, int]:
        """How many products come before each value, a chain as late as its readers allow: between
        two nodes of one level there is no product."""
        nodes = self.scope.program.nodes
        level: dict[str, int] = {}
        for node in nodes:
            at = max((level.get(v, 0) for v in node.inputs), default=0)
            inside = node.body is None and chained(node)
            level |= dict.fromkeys(node.outputs, at if inside else at + 1)
        latest: dict[str, int] = {}
        for node in reversed(nodes):
            inside = node.body is None and chained(node)
            if inside:
                level[node.outputs[0]] = latest.get(node.outputs[0], level[node.outputs[0]])
            at = level[node.outputs[0]] - (not inside)
            for v in node.inputs:
                latest[v] = min(latest.get(v, at), at)
        return level

    def reads(self, node: Node) -> tuple[float, ...]:
        own = self.chain.get(node.outputs[0], -1 - len(self.taken))
        return tuple(self._read(own, v, node) for v in node.inputs)

    def _read(self, chain: int, name: str, node: Node) -> float:
        types = self.scope.program.types
        if node.op == "take" and name == node.inputs[0]:
            return min(1.0, types[node.outputs[0]].nbytes / max(types[name].nbytes, 1))
        made = self.scope.producer.get(name)
        while made is not None and (made.op in VIEWS or made.op == "slice"):
            if self.chain.get(made.outputs[0]) != chain and made.op == "slice":
                break
            made = self.scope.producer.get(made.inputs[0])
        if made is not None and lookup(made.op).kind == "create":
            return 0.0
        if made is not None and self.chain.get(made.outputs[0], -1) == chain:
            return 0.0
        value = self._source(self.scope.owner(name))
        if value in self.unmade:
            return 0.0
        whole = self.graph.scopes[value[0]].bytes(value[1])
        before = self.taken.get((chain, value), 0)
        now = max(min(self.scope.bytes(name), whole - before), 0)
        self.taken[chain, value] = before + now
        return now / max(self.scope.bytes(name), 1)

    def _source(self, owner: str) -> Value:
        """The kept value that stands for one that backward would read."""
        value = (self.scope.name, owner)
        while value in self.graph.saved:
            value = self.graph.saved[value]
            inner = self.graph.scopes[value[0]]
            if value[0]:
                value = (value[0], inner.owner(value[1]))
                break
        return self.kept.source.get(value, value)

    def written(self, node: Node) -> bool:
        own = self.chain.get(node.outputs[0])
        stack, seen = [node.outputs[0]], set[str]()
        while stack:
            name = stack.pop()
            if name in seen:  # parts of one value come together in a concat
                continue
            seen.add(name)
            value = (self.scope.name, name)
            if value in self.graph.ends or value in self.kept.values:
                return True
            for reader in self.graph.readers.get(value, ()):
                if reader.node is None:
                    if self._leaves(reader.result):
                        return True
                elif lookup(reader.node.op).kind == "view" and reader.result[1] in self.chain:
                    stack.append(reader.result[1])
                elif self._again(value, reader.result):
                    continue
                elif own is None or self.chain.get(reader.result[1]) != own:
                    return True
        return False

    def _leaves(self, result: Value) -> bool:
        """Whether a value that another scope reads is written for it: kept values are, what is
        computed again is not."""
        return result[0] != "" or not self.graph.runs_forward(self.scope.name)

    def _again(self, value: Value, reader: Value) -> bool:
        """Whether a backward chain computes a forward value again instead of reading it."""
        return value in self.graph.forward and reader not in self.graph.forward


AGAIN = 5 / 4
"""Backward of fused attention computes the scores again: five products for the four here."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product: plain, or part of a fused kernel."""

    kind: Literal["plain", "attention", "grouped"]
    share: float = 1.0
    """Attention: passes over the scores, times the share of them that no mask hides."""
    experts: int = 1
    """Grouped: how many experts share the rows."""


@dataclass(frozen=True)
class Kernels:
    """What the kernels of a program do, by value of the one-device program."""

    unmade: frozenset[Value]
    """Values that stay inside a kernel for attention or experts."""
    products: Mapping[Value, Product]
    reads: Mapping[Value, tuple[float, ...]]
    """Share of each operand that a node reads from memory, by its first result."""
    writes: frozenset[Value]
    """Results that are written to memory."""
    kept: Mapping[Value, int]
    """Values kept from forward to backward, and in how many layers each."""
    layers: int
    """How many layers a step runs: cores of attention, or blocks where there is none."""


def kernels(program: Program) -> Kernels:
    """The kernels of a one-device program in primitives."""
    graph = Graph(program)
    scores = _scores(graph)
    grouped = _gathered(graph)
    inside = set(scores) | set(grouped)
    unmade = {v for v in graph.values() if graph.group(v) in inside}
    masked = _absorb(graph, unmade, scores)
    products = {
        (scope.name, node.outputs[0]): Product("plain")
        for scope, node in graph.nodes()
        if lookup(node.op).kind == "einsum"
    }
    for value, group in _around(graph, set(grouped)):
        products[value] = Product("grouped", experts=grouped[group])
    cores: dict[Value, int] = {}
    for value, group in _around(graph, scores):
        passes = 1.0 if value in graph.forward else AGAIN
        products[value] = Product("attention", passes / (2 if group in masked else 1))
        if value in unmade and value in graph.forward:
            cores.setdefault(group, graph.scopes[value[0]].times)
    kept = keep(graph, unmade)
    reads, writes = traffic(graph, unmade, kept)
    blocks = sum(s.times for s in graph.scopes.values() if s.name and graph.runs_forward(s.name))
    return Kernels(
        frozenset(unmade),
        products,
        reads,
        writes,
        {v: graph.scopes[v[0]].times for v in kept.values},
        sum(cores.values()) or blocks,
    )


def _around(graph: Graph, groups: set[Value]) -> list[tuple[Value, Value]]:
    """Batched products with an operand or result of these classes, with the class."""
    out: list[tuple[Value, Value]] = []
    for scope, node in graph.nodes():
        if node.op == "bmm":
            around = (graph.group((scope.name, v)) for v in (*node.outputs, *node.inputs))
            group = next((g for g in around if g in groups), None)
            if group is not None:
                out.append(((scope.name, node.outputs[0]), group))
    return out


def _scores(graph: Graph) -> set[Value]:
    """Classes of scores: made by a batched product, through a softmax, into another."""
    made, used, topped, raised = (set[Value]() for _ in range(4))
    for scope, node in graph.nodes():
        groups = [graph.group((scope.name, v)) for v in node.inputs]
        if node.op == "bmm":
            made.add(graph.group((scope.name, node.outputs[0])))
            used |= set(groups)
        elif node.op == "amax":
            topped.add(groups[0])
        elif node.op == "exp":
            raised.add(groups[0])
    return made & used & topped & raised


def _gathered(graph: Graph) -> dict[Value, int]:
    """Classes of weights gathered for each token, and of their gradients before they are added
    up, with the number of experts."""
    found: dict[Value, int] = {}
    for scope, node in graph.nodes():
        types = scope.program.types
        if node.op == "take" and len(types[node.inputs[0]].shape) > 2:
            value, table = node.outputs[0], types[node.inputs[0]]
        elif node.op == "index_add" and len(types[node.outputs[0]].shape) > 2:
            value, table = node.inputs[0], types[node.outputs[0]]
        else:
            continue
        if node.attrs.get("dim", 0) == 0:
            found[graph.group((scope.name, value))] = table.shape[0]
    used = {group for _, group in _around(graph, set(found))}
    return {group: count for group, count in found.items() if group in used}


def _absorb(graph: Graph, unmade: set[Value], scores: set[Value]) -> set[Value]:
    """Add what only scores are made of: masks. Returns the classes of scores that a mask halves,
    one that compares positions or is a constant."""
    target: dict[Value, Value] = {}
    masked: set[Value] = set()

    def gone(value: Value) -> bool:
        readers = graph.readers.get(value, [])
        if value in unmade or value in graph.ends or not readers:
            return False
        for reader in readers:
            node = reader.node
            if node is not None and lookup(node.op).kind not in ("map", "view"):
                return False
            if reader.result not in unmade:
                return False
        first = readers[0].result
        unmade.add(value)
        target[value] = target.get(first, graph.group(first))
        return True

    def sweep(scope: Scope) -> None:
        for node in reversed(scope.program.nodes):
            value = (scope.name, node.outputs[0])
            if node.body is not None:
                sweep(graph.scopes[node.outputs[0]])
            elif lookup(node.op).kind in ("map", "view", "create"):
                absorbed = gone(value)
                if absorbed and node.op in ORDERS:
                    masked.add(target[value])
        for item in scope.program.inputs:
            if gone((scope.name, item.name)) and item.role == "const" and not scope.name:
                masked.add(target[scope.name, item.name])

    sweep(graph.scopes[""])
    return masked & scores
