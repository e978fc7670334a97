"""Prices against some published measurements, and the scorer against a small case."""

from __future__ import annotations

import pytest

from benchmarks.cost.score import score
from benchmarks.cost.tables import groups, rows, seconds
from shardproof.synthesis.strategy.answers import answer

SOME = ("foundry", "internevo", "zb", "nemo", "korthikanti")


def test_the_tables_hold_every_row_once() -> None:
    every = list(rows())
    assert len(every) == len({r["id"] for r in every}) == 2623
    assert {r["group"] for r in every} == set(groups()["groups"])


def test_a_slice_of_measurements_is_priced_as_closely_as_the_page_says() -> None:
    some = [r for r in rows() if r["group"].split("-")[0] in SOME][::4]
    found = score(some, {r["id"]: answer(r, groups()) for r in some})
    assert found.priced == 1
    assert found.mape < 0.15


def test_the_order_within_a_group_is_found() -> None:
    some = [r for r in rows() if r["group"] == "playbook-1B-64gpu"]
    found = score(some, {r["id"]: answer(r, groups()) for r in some})
    assert found.pairs > 3000
    assert found.ordered > 0.93


def test_the_scorer_counts_errors_pairs_and_regret() -> None:
    some = [r for r in rows() if r["group"] == "zb-1.5B-m24"]
    exact = {r["id"]: {"step_s": seconds(r), "memory_bytes": 1e9} for r in some}
    found = score(some, exact)
    assert (found.mape, found.ordered, found.regret) == (0, 1, 0)
    reverse = {r["id"]: {"step_s": 1 / (seconds(r) or 1), "memory_bytes": 1e9} for r in some}
    found = score(some, reverse)
    assert found.ordered == 0
    assert found.regret == pytest.approx(1 - 11.8 / 14.5, abs=0.01)
