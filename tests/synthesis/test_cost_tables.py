"""The cheapest options of linked nodes, against all choices there are."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest

from benchmarks.cost_tables import Link, Tables, cheapest


def numbers(random_: random.Random, count: int) -> np.ndarray:
    return np.array([random_.choice((0.0, 1.0, 2.5, 4.0, 7.0, math.inf)) for _ in range(count)])


def link(random_: random.Random, left: int, right: int) -> Link:
    """Between nodes of so many options, by keys that some of them share."""
    keys = [np.array([random_.randrange(2) for _ in range(n)]) for n in (left, right)]
    return Link(keys[0], keys[1], numbers(random_, 4).reshape(2, 2))


def least(tables: Tables) -> float:
    choices = product(*(range(len(tables.options[kind])) for kind in tables.nodes))
    return min(tables.cost(chosen) for chosen in choices)


def distinct(seed: int) -> Tables:
    """Nodes of which no two are alike, with links at random, some of them twice."""
    random_ = random.Random(seed)
    count = random_.randint(1, 7)
    options = [numbers(random_, random_.randint(2, 3)) for _ in range(count)]
    pairs = [(u, v) for u in range(count) for v in range(u)]
    pairs = random_.choices(pairs, k=random_.randint(0, 2 * count)) if pairs else []
    links = [link(random_, len(options[u]), len(options[v])) for u, v in pairs]
    edges = [(u, v, at) for at, (u, v) in enumerate(pairs)]
    return Tables(options, links, list(range(count)), edges)


def repeated(seed: int) -> Tables:
    """Blocks of three nodes, each linked to the next, after a node that all of them read."""
    random_ = random.Random(seed)
    blocks = random_.randint(2, 4)
    options = [numbers(random_, 2) + 1 for _ in range(5)]
    links = [link(random_, 2, 2) for _ in range(6)]
    nodes, edges = [0], list[tuple[int, int, int]]()
    for block in range(blocks):
        first = len(nodes)
        nodes += [1, 2, 3] if blocks < 4 else [1, 2]
        edges += [(0, first, 0), (first, first + 1, 1)]
        if blocks < 4:
            edges += [(first, first + 2, 2), (first + 1, first + 2, 3)]
        if block:
            edges += [(first - 1, first, 4), (first - 1, first + 1, 5)]
    return Tables(options, links, nodes, edges)


@pytest.mark.parametrize("seed", range(80))
def test_of_nodes_that_differ_the_cheapest_choice_is_found(seed: int) -> None:
    tables = distinct(seed)
    best, found = least(tables), cheapest(tables, 10)
    if math.isinf(best):
        assert found is None
        return
    assert found is not None
    assert found.cost == tables.cost(found.options)
    assert found.cost == pytest.approx(best, rel=1e-4)
    assert found.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(80))
def test_the_bound_is_on_choices_in_which_blocks_differ(seed: int) -> None:
    tables = repeated(seed)
    best, found = least(tables), cheapest(tables, 10)
    if found is not None:
        assert found.bound <= best * (1 + 1e-9)
        assert best <= found.cost == tables.cost(found.options)


def test_blocks_that_are_alike_are_one_and_the_bound_is_met() -> None:
    """A stream that blocks read and add to: each block splits or not, a move costs 3."""
    move = np.array([[0.0, 3.0], [3.0, 0.0]])
    keys = np.arange(2)
    options = [np.array([0.0, math.inf]), np.array([4.0, 2.0])]
    links = [Link(keys, keys, move)]
    nodes = [0, *[1] * 200, 0]
    tables = Tables(options, links, nodes, [(n, n + 1, 0) for n in range(201)])
    found = cheapest(tables, 10)
    assert found is not None
    assert found.options == [0, *[1] * 200, 0]
    assert found.cost == pytest.approx(406)
    assert found.bound == pytest.approx(406)
