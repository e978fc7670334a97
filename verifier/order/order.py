"""Happens-before, exactly: reachability between steps, by vector clocks over streams.

A clock holds, for every stream, how many of its steps come before a step; a step without a place
in a stream (the end of an asynchronous event) is asked about through what comes after it. Cost:
one vector per step, and a lookup per query.
"""

from collections import Counter
from typing import Any

import numpy as np

from shardproof.verifier.order.graph import Graph
from shardproof.verifier.order.sorting import sort

LIMIT = 500_000_000
"""Above so many bytes the clocks are not kept; queries then search the graph."""


class Cyclic(Exception):  # noqa: N818  (an answer, not a failure)
    """The edges contradict each other: nothing is ordered, and no question is answered."""


class Order:
    """The order of a graph. Raises Cyclic where it has a cycle or a step that never happens."""

    def __init__(self, graph: Graph, limit: int = LIMIT) -> None:
        self.graph = graph
        self.sequence, stuck = sort(graph)
        if stuck:
            raise Cyclic(f"{len(stuck)} steps wait for each other")
        self.rank = {node: i for i, node in enumerate(self.sequence)}
        self._position = [0] * len(graph.steps)
        self._clocks: Any = None
        chains = max(graph.chain, default=-1) + 1
        longest = max(Counter(graph.chain).values(), default=0)
        kind = np.uint16 if longest < 2**16 else np.uint32
        if len(graph.steps) * chains * np.dtype(kind).itemsize <= limit:
            self._keep(chains, kind)

    def _keep(self, chains: int, kind: type[np.unsignedinteger[Any]]) -> None:
        clocks: Any = np.zeros((len(self.graph.steps), chains), dtype=kind)
        count = [0] * chains
        for node in self.sequence:
            chain = self.graph.chain[node]
            mine = clocks[node]
            if chain >= 0:
                count[chain] += 1
                self._position[node] = count[chain]
                mine[chain] = count[chain]
            for then in self.graph.after[node]:
                np.maximum(clocks[then], mine, out=clocks[then])
        self._clocks = clocks

    def before(self, first: int, then: int) -> bool:
        """Whether `first` comes before `then` (or is it) in every execution."""
        if first == then:
            return True
        if self.rank[first] > self.rank[then]:
            return False
        if self._clocks is None:
            return self._search(first, then)
        chain = self.graph.chain[first]
        if chain >= 0:
            return bool(self._clocks[then, chain] >= self._position[first])
        return any(self.before(node, then) for node in self.graph.after[first])

    def _search(self, first: int, then: int) -> bool:
        seen, todo = {first}, [first]
        while todo:
            for node in self.graph.after[todo.pop()]:
                if node == then:
                    return True
                if node not in seen and self.rank[node] < self.rank[then]:
                    seen.add(node)
                    todo.append(node)
        return False
