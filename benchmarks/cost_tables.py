"""The cheapest options of nodes whose costs are tables, with a checked bound.

Each node takes one of its options, and two linked nodes cost together what their two options cost.
Any cost model of placements can be given so: an option is a placement of an op, a link the moves
between two ops. Nodes with the same few links around them take the same option, so repeated blocks
cost nothing more; the bound is on all choices, alike or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite

import numpy as np
from numpy.typing import NDArray

from shardproof.synthesis.optimum.linear import GAP, Linear, bound, solve, useful
from shardproof.synthesis.optimum.space import PICO

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]

AROUND = (4, 6, 8)
"""How many links around two nodes must be the same for them to be of one class: tried in turn."""

ROOM = 1e-3
"""How far above the bound a choice is looked for before more nodes are told apart."""


@dataclass(frozen=True)
class Link:
    """What two nodes cost together: a key of each option of either, and seconds by the two keys,
    infinite where they do not go together."""

    left: Indices
    right: Indices
    cost: Numbers


@dataclass(frozen=True)
class Tables:
    """Costs in seconds. Nodes, and pairs of nodes, that cost the same name the same table."""

    options: Sequence[Numbers]
    """Of each option of a kind of node; infinite where it is closed."""
    links: Sequence[Link]
    nodes: Sequence[int]
    """The kind of each node."""
    edges: Sequence[tuple[int, int, int]]
    """Left node, right node, link."""

    def cost(self, chosen: Sequence[int]) -> float:
        total = sum(float(self.options[k][o]) for k, o in zip(self.nodes, chosen, strict=True))
        for left, right, kind in self.edges:
            link = self.links[kind]
            total += float(link.cost[link.left[chosen[left]], link.right[chosen[right]]])
        return total


@dataclass(frozen=True)
class Chosen:
    options: list[int]
    """Of each node."""
    cost: float
    bound: float
    """No choice costs less: by duals, in rationals, of tables reduced in floats."""


def cheapest(tables: Tables, seconds: float) -> Chosen | None:
    """The cheapest choice; None where none was found in `seconds` of the processor."""
    found: Chosen | None = None
    for around in AROUND:
        classes = _Classes(tables, around)
        program, variables, beside = classes.program()
        solved = solve(program, seconds)
        if solved is None:
            break
        least = bound(program, solved.duals)
        total = beside + float(least) / PICO
        options = classes.decided(variables, solved.values)
        if not tables.cost(options) <= total * (1 + GAP):
            near = useful(program, solved.duals, float(least) + total * ROOM * PICO)
            solved = solve(program, seconds, whole=True, open_=near)
            if solved is None and around == AROUND[-1]:
                solved = solve(program, seconds, whole=True)
            options = options if solved is None else classes.decided(variables, solved.values)
        found = Chosen(options, tables.cost(options), total)
        if found.cost <= total * (1 + ROOM):
            break
    return found if found is not None and isfinite(found.cost) else None


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Links that cost the same, between the nodes of two classes."""

    ends: tuple[int, int]
    nodes: tuple[Indices, Indices]
    keys: tuple[Indices, Indices]
    cost: Numbers

    def seen_from(self, index: int) -> _Pairs:
        """With a class on the left, its nodes in order."""
        (one, two), (left, right), (a, b), cost = self.ends, self.nodes, self.keys, self.cost
        if one != index:
            one, two, left, right, a, b, cost = two, one, right, left, b, a, cost.T
        order = np.lexsort((right, left))
        return _Pairs((one, two), (left[order], right[order]), (a, b), cost)


Shares = dict[int, dict[int, int]]
"""The variable of each option of each class, which is its share of the nodes."""

Side = tuple[Indices, dict[tuple[int, ...], list[int]]]
"""An end of pairs: its nodes, and the variables of the pairs by those of the options."""


class _Classes:
    """Nodes that are alike, and their links. Classes of one or two links are taken out: what is
    cheapest in them is a cost of the nodes beside them."""

    def __init__(self, tables: Tables, around: int) -> None:
        self.of = _alike(tables, around)
        self.members: list[Indices] = _grouped(np.array(self.of))
        self.cost: list[Numbers] = [tables.options[tables.nodes[int(m[0])]] for m in self.members]
        self.pairs: list[list[_Pairs]] = [[] for _ in self.members]
        self.taken: dict[int, list[_Pairs]] = {}
        edges = np.array(tables.edges, dtype=np.int64).reshape(-1, 3)
        left, right = np.array(self.of)[edges[:, :2].T]
        for group in _grouped((left * len(self.members) + right) * len(tables.links) + edges[:, 2]):
            link = tables.links[int(edges[group[0], 2])]
            ends = int(left[group[0]]), int(right[group[0]])
            nodes = edges[group, 0], edges[group, 1]
            self._add(_Pairs(ends, nodes, (link.left, link.right), link.cost))
        waiting = list(range(len(self.members)))
        while waiting:
            index = waiting.pop()
            if index not in self.taken:
                waiting += self._take_out(index)

    def _add(self, pairs: _Pairs) -> None:
        """Pairs, joined with those of the same nodes."""
        new = pairs.seen_from(pairs.ends[0])
        for old in self.pairs[new.ends[0]]:
            other = old.seen_from(new.ends[0])
            if all(np.array_equal(a, b) for a, b in zip(new.nodes, other.nodes, strict=True)):
                self._drop(old)
                (left, a), (right, b) = (_joint(*k) for k in zip(new.keys, other.keys, strict=True))
                cost = new.cost[np.ix_(a[0], b[0])] + other.cost[np.ix_(a[1], b[1])]
                new = _Pairs(new.ends, new.nodes, (left, right), cost)
                break
        for end in set(new.ends):
            self.pairs[end].append(new)

    def _drop(self, pairs: _Pairs) -> None:
        for end in set(pairs.ends):
            self.pairs[end].remove(pairs)

    def _each(self, index: int, nodes: Indices) -> int:
        """How many of some pairs each node of a class has; 0 where not all have as many."""
        counts = np.unique(nodes, return_counts=True)[1]
        alike = len(counts) == len(self.members[index]) and (counts == counts[0]).all()
        return int(counts[0]) if alike else 0

    def _take_out(self, index: int) -> list[int]:
        """Take a class out if that leaves costs of nodes and pairs; what it was linked to."""
        pairs = [p.seen_from(index) for p in self.pairs[index]]
        ends, open_ = [p.ends[1] for p in pairs], np.flatnonzero(np.isfinite(self.cost[index]))
        single = all(self._each(index, p.nodes[0]) == 1 for p in pairs) and index not in ends
        if not single or len(pairs) not in (1, 2) or not len(open_):
            return []
        beside = [p.nodes[1] for p in pairs]
        times = self._each(ends[0], beside[0])
        if (beside[0] == beside[1]).any() if len(pairs) == 2 else not times:
            return []
        first, *rest = (p.cost[p.keys[0][open_]] for p in pairs)
        first = first + self.cost[index][open_, None]
        self.taken[index] = pairs
        for p in list(self.pairs[index]):
            self._drop(p)
        if not rest:
            self.cost[ends[0]] = self.cost[ends[0]] + times * first.min(axis=0)[pairs[0].keys[1]]
        else:
            least = np.full((first.shape[1], rest[0].shape[1]), np.inf)
            for a, b in zip(first, rest[0], strict=True):
                np.minimum(least, a[:, None] + b, out=least)
            keys = pairs[0].keys[1], pairs[1].keys[1]
            self._add(_Pairs((ends[0], ends[1]), (beside[0], beside[1]), keys, least))
        return ends

    def program(self) -> tuple[Linear, Shares, float]:
        """What is left, its variables, and the seconds that all choices cost beside."""
        linear, variables, least = Linear(), Shares(), 0.0
        for index in set(range(len(self.members))) - set(self.taken):
            open_ = np.flatnonzero(np.isfinite(self.cost[index])).tolist()
            cost = self.cost[index] * len(self.members[index])
            low = float(min(cost[open_], default=0.0))
            least += low
            variables[index] = {o: linear.variable(floor((cost[o] - low) * PICO)) for o in open_}
            linear.one_of(list(variables[index].values()))
        sides: dict[int, list[Side]] = defaultdict(list)
        for pairs in dict.fromkeys(p for found in self.pairs for p in found):
            cost = pairs.cost * len(pairs.nodes[0]) * PICO
            cells = [
                {int(k): tuple(v for o, v in variables[end].items() if keys[o] == k)
                 for k in np.unique(keys[list(variables[end])])}
                for keys, end in zip(pairs.keys, pairs.ends, strict=True)
            ]  # fmt: skip
            ways = {
                (a, b): linear.variable(floor(cost[a, b]))
                for a in cells[0]
                for b in cells[1]
                if np.isfinite(cost[a, b])
            }
            for at, end in enumerate(pairs.ends):
                flows: dict[int, list[int]] = {key: [] for key in cells[at]}
                for way, variable in ways.items():
                    flows[way[at]].append(variable)
                sides[end].append((pairs.nodes[at], {cells[at][k]: v for k, v in flows.items()}))
        for index, found in sides.items():
            self._flow(linear, index, found)
        return linear, variables, least

    def _flow(self, linear: Linear, index: int, sides: Sequence[Side]) -> None:
        """Pairs have as much of an option as the nodes have. Those that only some nodes have are
        taken together with others, so that each node has one."""
        some: dict[frozenset[tuple[int, ...]], list[Side]] = defaultdict(list)
        for nodes, flows in sides:
            if self._each(index, nodes):
                for options, variables in flows.items():
                    linear.same(variables, options)
            else:
                some[frozenset(flows)].append((nodes, flows))
        for cells, left in some.items():
            while left:
                missing, union, rest = set(self.members[index].tolist()), list[Side](), left
                left = list[Side]()
                for side in rest:
                    nodes = set(side[0].tolist())
                    together = len(nodes) == len(side[0]) and nodes <= missing
                    missing -= nodes if together else set()
                    (union if together else left).append(side)
                union = union or [left.pop()]
                most = max(int(np.unique(nodes, return_counts=True)[1].max()) for nodes, _ in union)
                for options in cells:
                    terms = [(v, -most * len(self.members[index])) for v in options]
                    terms += [(v, len(nodes)) for nodes, flows in union for v in flows[options]]
                    linear.row(terms, None if missing else 0, 0)
                for _, flows in union:
                    linear.one_of([v for variables in flows.values() for v in variables])

    def decided(self, variables: Shares, values: Sequence[float]) -> list[int]:
        """The option of each node."""
        out = {i: max(shares, key=lambda o: values[shares[o]]) for i, shares in variables.items()}
        for index, pairs in reversed(self.taken.items()):
            cost = self.cost[index]
            for p in pairs:
                cost = cost + p.cost[p.keys[0], p.keys[1][out[p.ends[1]]]]
            out[index] = int(cost.argmin())
        return [out[index] for index in self.of]


def _alike(tables: Tables, steps: int) -> list[int]:
    """The class of each node: what is the same so many links around it."""
    around: list[list[tuple[int, int]]] = [[] for _ in tables.nodes]
    count = len(tables.nodes)
    for left, right, link in tables.edges:
        around[left].append((right, 2 * link * count))
        around[right].append((left, (2 * link + 1) * count))
    classes = list(np.unique(tables.nodes, return_inverse=True)[1].tolist())
    for _ in range(steps):
        names: dict[tuple[int, ...], int] = {}
        seen = [sorted([link + classes[n] for n, link in links]) for links in around]
        both = zip(classes, seen, strict=True)
        classes = [names.setdefault((c, *s), len(names)) for c, s in both]
    return classes


def _grouped(names: Indices) -> list[Indices]:
    """Where each name stands."""
    order = np.argsort(names, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(names[order])) + 1) if len(names) else []


def _joint(one: Indices, two: Indices) -> tuple[Indices, Indices]:
    """Keys that tell apart what either of two does, and the two keys of each."""
    both, keys = np.unique(np.stack([one, two]), axis=1, return_inverse=True)
    return keys.reshape(-1), both
