"""The kernels of a program: attention, grouped experts, chains."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shardproof.synthesis.kernels.chains import traffic
from shardproof.synthesis.kernels.graph import Graph, Scope, Value
from shardproof.synthesis.kernels.keeping import keep
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.ops.classes import ORDERS

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
