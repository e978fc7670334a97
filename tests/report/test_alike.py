"""Sentences that count up are one; nothing else is left out."""

import pytest

from shardproof.agent.run.console import counted_up


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], []),
        (["a 0", "a 1"], ["a 0", "a 1"]),
        (["mb 0 of dp", "mb 1 of dp", "mb 2 of dp"], ["mb 0 to 2 of dp"]),
        (["x", "4 by 9", "4 by 10", "4 by 11", "y"], ["x", "4 by 9 to 11", "y"]),
        (["a 0", "a 1", "a 3", "a 4", "a 5"], ["a 0", "a 1", "a 3 to 5"]),
        (["0 a 0", "1 a 1", "2 a 2"], ["0 a 0", "1 a 1", "2 a 2"]),
        (
            ["a 0 b 0", "a 1 b 0", "a 1 b 1", "a 1 b 2"],
            ["a 0 b 0", "a 1 b 0", "a 1 b 1", "a 1 b 2"],
        ),
    ],
)
def test_runs_are_one_sentence(lines: list[str], said: list[str]) -> None:
    assert counted_up(lines) == said
