"""Topological orders of a graph of steps."""

from collections import deque
from collections.abc import Iterable

from shardproof.verifier.order.graph import Graph


def sort(
    graph: Graph,
    within: set[int] | None = None,
    late: Iterable[int] = (),
) -> tuple[list[int], set[int]]:
    """A topological order of what can happen, and the nodes that cannot.

    Args:
        within: only these nodes; must hold the ancestors of its nodes.
        late: nodes that come only when nothing else can.
    """
    nodes = range(len(graph.steps)) if within is None else sorted(within)
    degree = dict.fromkeys(nodes, 0)
    for node in nodes:
        for then in graph.after[node]:
            if then in degree:
                degree[then] += 1
    held = set(late)
    ready = deque(n for n in nodes if degree[n] == 0 and n not in graph.never)
    back: deque[int] = deque()
    order: list[int] = []
    while ready or back:
        node = ready.popleft() if ready else back.popleft()
        if node in held and ready:
            back.append(node)
            continue
        order.append(node)
        for then in graph.after[node]:
            if then in degree:
                degree[then] -= 1
                if degree[then] == 0 and then not in graph.never:
                    (back if then in held else ready).append(then)
    return order, set(nodes) - set(order)


def predecessors(graph: Graph) -> list[list[int]]:
    """By node, the nodes with an edge to it."""
    out: list[list[int]] = [[] for _ in graph.steps]
    for node, successors in enumerate(graph.after):
        for then in successors:
            out[then].append(node)
    return out
