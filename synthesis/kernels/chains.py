"""What elementwise chains read and write: one read of each operand, one write of each result."""

from collections.abc import Collection
from dataclasses import dataclass, field

from shardproof.synthesis.kernels.graph import Graph, Scope, Value, chained
from shardproof.synthesis.kernels.keeping import Kept
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.ops.classes import VIEWS

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
