"""The ledger of speeds: what counts as slower, and a slice of it that is measured."""

from __future__ import annotations

import pytest

from benchmarks.ledger import GROUPS, Row, compared, known


@pytest.mark.parametrize(
    ("ratios", "runs", "late"),
    [
        ([2.9], 1, False),
        ([3.1, 2.0], 2, False),
        ([3.1, 3.2], 2, True),
    ],
)
def test_a_row_is_slower_where_two_runs_say_so(ratios: list[float], runs: int, late: bool) -> None:
    asked = 0

    def measure(group: str) -> dict[str, Row]:
        nonlocal asked
        asked += 1
        return {f"{group}: x": Row(1.0, ratios[asked - 1])}

    found, bad = compared("layer", {"layer: x": 2.0}, measure)
    assert asked == runs
    assert bool(bad) == late
    assert found["layer: x"].ratio == min(ratios[:runs])


def test_rows_that_are_not_in_the_file_are_not_held_against_it() -> None:
    found, bad = compared("layer", {}, lambda g: {f"{g}: x": Row(1.0, 99.0)})
    assert found
    assert not bad


def test_little_of_the_clock_is_not_held_against_a_row() -> None:
    _, bad = compared("layer", {"layer: x": 0.01}, lambda g: {f"{g}: x": Row(0.01, 0.1)})
    assert not bad


def test_the_file_has_rows_of_every_group() -> None:
    assert {name.split(":")[0] for name in known()} == set(GROUPS)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["imports", "layer", "frontier"])
def test_nothing_is_much_slower_than_it_was(group: str) -> None:
    beside = {name: 2 * ratio for name, ratio in known().items()}  # other tests run too
    _, bad = compared(group, beside)
    assert not bad
