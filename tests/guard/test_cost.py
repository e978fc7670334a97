"""The verdict on what the guard costs: shown, above, or not shown."""

from __future__ import annotations

import random

import pytest

from benchmarks.guard_cost import median, verdict


@pytest.mark.parametrize(
    ("cost", "noise", "pairs", "code"),
    [(0.008, 0.01, 32, 0), (0.05, 0.02, 32, 1), (0.008, 0.3, 32, 2), (0.0, 0.0, 5, 2)],
)
def test_the_verdict_has_three_outcomes(cost: float, noise: float, pairs: int, code: int) -> None:
    draw = random.Random(1)
    rows = [cost + draw.gauss(0, noise) for _ in range(pairs)]
    assert verdict([median(rows), median(rows)])[0] == code


def test_one_measure_above_the_limit_is_enough() -> None:
    small, large = median([0.001] * 20), median([0.05] * 20)
    assert [verdict(x)[0] for x in ([small, large], [large, small], [small, small])] == [1, 1, 0]


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    """Of skewed times too: no assumption on how they are distributed."""
    draw = random.Random(2)
    held = 0
    for _ in range(1000):
        found = median([draw.expovariate(1.0) for _ in range(25)])
        held += found.low <= 0.6931 <= found.high
    assert held >= 940
