"""Puts the nodes of a program in an order in which operands come first."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from shardproof.verifier.kernel.program.program import Input, Node, Program
from shardproof.verifier.kernel.program.types import TensorType


def topological(nodes: Iterable[tuple[int, Node]], inputs: Sequence[Input]) -> list[Node] | None:
    """Nodes in an order in which operands come first, otherwise as before; None for a cycle."""
    pool = list(nodes)
    maker = {out: j for j, (_, n) in enumerate(pool) for out in n.outputs}
    known = {i.name for i in inputs}
    waiting: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for j, (_, node) in enumerate(pool):
        needs = {maker[v] for v in node.inputs if v in maker}
        if any(v not in maker and v not in known for v in node.inputs):
            return None
        waiting[j] = len(needs)
        for need in needs:
            readers.setdefault(need, []).append(j)
    ready = [(pool[j][0], j) for j, n in waiting.items() if n == 0]
    heapq.heapify(ready)
    out: list[Node] = []
    while ready:
        _, j = heapq.heappop(ready)
        out.append(pool[j][1])
        for reader in readers.get(j, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, (pool[reader][0], reader))
    return out if len(out) == len(pool) else None


def typed(program: Program, types: Mapping[str, TensorType]) -> Program:
    names = {i.name for i in program.inputs} | {o for n in program.nodes for o in n.outputs}
    return replace(program, types={name: types[name] for name in types if name in names})
