"""Writes down why a program of events is safe: what the checker of orders asks to see.

For each way in which conditions turn out: `numbers`, one for every node of the graph of waits, that
rise along each of its edges; and `paths`, for every pair of accesses that has to be ordered and is
not by being on one stream, the edges that lead from one to the other. Both are lists of integers in
which what repeats is said once: ranks that do the same, layers, micro-batches.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

from shardproof.verifier.order.context import Context
from shardproof.verifier.order.events import TimeProgram
from shardproof.verifier.order.graph import Graph
from shardproof.verifier.order.matching import Unit
from shardproof.verifier.order.paths import paths
from shardproof.verifier.order.pieces import neighbours, pieces
from shardproof.verifier.order.sorting import sort

LEAST = 4
"""Shorter repetitions are written out."""


def witness(program: TimeProgram) -> list[dict[str, Any]]:
    """For a program without violations, what shows that it has none. JSON-able.

    Raises:
        ValueError: the program can hang, or has accesses that nothing orders.
    """
    return [_way(Context(chosen)) for _, chosen in paths(program)]


def _way(ctx: Context) -> dict[str, Any]:
    waits = ctx.queued
    ways = _longest(waits), _by_turns(waits)
    packed = [pack([b - a for a, b in pairwise([0, *numbers])]) for numbers in ways]
    shorter = len(packed[1]) < len(packed[0])
    numbers = ways[shorter]

    def start(unit: Unit) -> int:
        return numbers[waits.start((unit[0], unit[1], -1))]

    return {"numbers": packed[shorter], "paths": pack(list(_paths(ctx, start)))}


def _longest(graph: Graph) -> list[int]:
    """By node the length of the longest way to it: even where ranks wait for each other in turns,
    as in pipelines."""
    order, stuck = sort(graph)
    if stuck:
        raise ValueError(f"{len(stuck)} steps never happen")
    numbers = [0] * len(graph.steps)
    for node in order:
        for then in graph.after[node]:
            numbers[then] = max(numbers[then], numbers[node] + 1)
    return numbers


def _by_turns(graph: Graph) -> list[int]:
    """By node its place in a run in which no rank issues more than the others, if it can be helped:
    even where a stream runs ahead of another."""
    missing = [0] * len(graph.steps)
    for then in (then for after in graph.after for then in after):
        missing[then] += 1

    def turn(node: int, cause: tuple[int, int]) -> tuple[int, int, int]:
        step = graph.steps[node]
        return (*cause, node) if step is None else (step[1], step[0], node)

    ready = [turn(node, (0, 0)) for node, count in enumerate(missing) if count == 0]
    heapify(ready)
    numbers = [0] * len(graph.steps)
    for place in range(len(numbers)):
        index, rank, node = heappop(ready)
        numbers[node] = place
        for then in graph.after[node]:
            missing[then] -= 1
            if missing[then] == 0:
                heappush(ready, turn(then, (index, rank)))
    return numbers


def _paths(ctx: Context, start: Callable[[Unit], int]) -> Iterator[int]:
    """For each pair once: how many edges lead out of a stream, and for each how many nodes further
    on it begins, and which of the edges there it is."""
    graph, rank = ctx.graph, ctx.order.rank if ctx.order else {}
    shown: set[tuple[Unit, Unit]] = set()
    for piece in pieces(ctx.program, start):
        for first, then in neighbours(piece):
            pair = first.unit, then.unit
            begin, goal = graph.end(first.unit), ctx.start(then.unit)
            if pair in shown or graph.follows(begin, goal):
                continue
            shown.add(pair)
            hops = list(_hops(graph, _shortest(graph, rank, begin, goal)))
            yield len(hops)
            for hop in hops:
                yield from hop


def _shortest(graph: Graph, rank: dict[int, int], begin: int, goal: int) -> list[int]:
    """The nodes from one to the other, or to one before it on its stream. Raises ValueError."""
    came = {begin: begin}
    todo = deque([begin])
    while todo:
        node = todo.popleft()
        if node == goal or graph.follows(node, goal):
            out = [node]
            while out[-1] != begin:
                out.append(came[out[-1]])
            return out[::-1]
        for then in graph.after[node]:
            if then not in came and rank[then] <= rank[goal]:
                came[then] = node
                todo.append(then)
    raise ValueError(f"nothing orders {graph.steps[begin]} and {graph.steps[goal]}")


def _hops(graph: Graph, nodes: Sequence[int]) -> Iterator[tuple[int, int]]:
    here = nodes[0]
    for node, then in pairwise(nodes):
        if not graph.follows(node, then):
            yield node - here, graph.after[node].index(then)
            here = then


def pack(values: Sequence[int]) -> list[int | list[int]]:
    """The integers, with `[back, count]` for `count` of them that stood `back` places before, one
    after another: what it copies may be its own beginning, as in a loop."""
    out: list[int | list[int]] = []
    first: dict[tuple[int, ...], int] = {}
    last: dict[tuple[int, ...], int] = {}
    at = 0
    while at < len(values):
        key = tuple(values[at : at + LEAST])
        sources = {places[key] for places in (first, last) if key in places}
        source = max(sources, key=lambda s: _alike(values, s, at), default=at)
        count = _alike(values, source, at) if source < at else 1
        if count < LEAST:
            source, count = at, 1
        out.append([at - source, count] if source < at else values[at])
        for place in range(at, at + count):
            key = tuple(values[place : place + LEAST])
            first.setdefault(key, place)
            last[key] = place
        at += count
    return out


def _alike(values: Sequence[int], source: int, at: int) -> int:
    count = 0
    while at + count < len(values) and values[source + count] == values[at + count]:
        count += 1
    return count
