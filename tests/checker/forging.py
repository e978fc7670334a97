"""Certificates of order for programs that deserve none, and certificates with something changed."""

from __future__ import annotations

import copy
import random
from collections import deque
from itertools import pairwise
from typing import Any

from shardproof.verifier.order.context import Context
from shardproof.verifier.order.events import TimeProgram
from shardproof.verifier.order.matching import Unit
from shardproof.verifier.order.paths import paths
from shardproof.verifier.order.pieces import neighbours, pieces
from shardproof.verifier.order.sorting import sort
from shardproof.verifier.order.witness import pack

Section = list[dict[str, Any]]


def forged(program: TimeProgram) -> Section:
    """As good as it gets: numbers that rise as long as steps can happen, the paths there are."""
    return [_way(Context(chosen)) for _, chosen in paths(program)]


def _way(ctx: Context) -> dict[str, Any]:
    order, stuck = sort(ctx.queued)
    numbers = {node: at for at, node in enumerate([*order, *sorted(stuck)])}
    listed = [numbers[node] for node in sorted(numbers)]
    found: list[int] = []
    shown: set[tuple[Unit, Unit]] = set()
    start = ctx.queued.start
    for piece in pieces(ctx.program, lambda unit: numbers[start((unit[0], unit[1], -1))]):
        for first, then in neighbours(piece):
            begin, goal = ctx.graph.end(first.unit), ctx.start(then.unit)
            if (first.unit, then.unit) in shown or ctx.graph.follows(begin, goal):
                continue
            shown.add((first.unit, then.unit))
            path = _path(ctx, begin, goal)
            found.append(len(path) - 1)
            for node, after in pairwise(path):
                found += [0, ctx.graph.after[node].index(after)]
    steps = [b - a for a, b in pairwise([0, *listed])]
    return {"numbers": pack(steps), "paths": pack(found)}


def _path(ctx: Context, begin: int, goal: int) -> list[int]:
    came, todo = {begin: begin}, deque([begin])
    while todo:
        node = todo.popleft()
        if node == goal:
            out = [goal]
            while out[0] != begin:
                out.insert(0, came[out[0]])
            return out
        for then in ctx.graph.after[node]:
            if then not in came:
                came[then] = node
                todo.append(then)
    return [begin]


def edited(section: Section, rng: random.Random) -> Section:
    """One thing changed somewhere: a number, a copy, an item more or less, a list, a type."""
    section = copy.deepcopy(section)
    if not section or rng.random() < 0.05:
        return rng.choice([[], [*section, {"numbers": [], "paths": []}], section[1:], [None]])
    way = rng.choice(section)
    if rng.random() < 0.1:
        key = rng.choice(["numbers", "paths", "more"])
        way[key] = rng.choice([[], None, "x", {}, 3, [1.5], [True], [[1]], [[0, 1]], [[1, 10**30]]])
        return section
    items = way[rng.choice([key for key in way if way[key]] or ["paths"])]
    at = rng.randrange(len(items)) if items else 0
    match rng.randrange(7) if items else 0:
        case 0:
            items.insert(at, rng.choice([0, 1, -1, 2, 10**30, [1, 3], [2, 2]]))
        case 1:
            del items[at]
        case 2:
            other = rng.randrange(len(items))
            items[at], items[other] = items[other], items[at]
        case 3:
            items[at] = rng.choice([0, 1, -1, -(10**30), 0.5, "1", None, [], [1, 2, 3], [-1, 2]])
        case _ if isinstance(items[at], list):
            items[at][rng.randrange(2)] += rng.choice([-2, -1, 1, 2])
        case _:
            items[at] += rng.choice([-3, -2, -1, 1, 2, 3])
    return section
