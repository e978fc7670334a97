"""The verdict on what the guard costs: shown, above, or not shown."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.guard_cost import Kind, cost, estimate, median, verdict


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


def _kinds(rng: np.random.Generator, watched: float, other: float, pairs: int) -> list[Kind]:
    """A tenth of the steps watched; noise that makes steps longer, and drifts."""

    def times(n: int, more: float) -> tuple[np.ndarray, np.ndarray]:
        drift = 1 + 0.05 * np.sin(np.arange(n) / 9)
        a, b = (drift * (1 + rng.exponential(0.05, n)) for _ in range(2))
        return (1 + more) * a, b

    return [
        Kind(0.1, *times(pairs // 10, watched)),
        Kind(0.9, *times(pairs - pairs // 10, other)),
    ]


def test_kinds_of_steps_are_weighed_as_they_come() -> None:
    plain = np.full(8, 2.0)
    kinds = [Kind(0.1, 1.5 * plain, plain), Kind(0.9, 1.01 * plain, plain)]
    assert cost(kinds) == pytest.approx(0.059)
    found = estimate(kinds)
    assert (found.low, found.high) == pytest.approx((0.059, 0.059))


def test_too_few_steps_of_a_kind_say_nothing() -> None:
    few = Kind(0.1, np.ones(5), np.ones(5))
    assert verdict([estimate([few, Kind(0.9, np.ones(99), np.ones(99))])])[0] == 2


def test_the_interval_of_a_cycle_holds_its_cost() -> None:
    rng = np.random.default_rng(3)
    found = [estimate(_kinds(rng, 0.08, 0.002, 400), seed, 300) for seed in range(40)]
    assert sum(f.low <= 0.0098 <= f.high for f in found) >= 35
    assert np.mean([f.value for f in found]) == pytest.approx(0.0098, abs=0.002)
    assert np.mean([f.high - f.low for f in found]) < 0.02
