"""A limit on a part of a run holds, whatever catches exceptions within."""

from __future__ import annotations

import contextlib
import time

import pytest

from shardproof.agent.run.errors import LimitError
from shardproof.agent.run.run import interruptible, within


def test_a_part_is_ended_in_time_although_exceptions_are_caught() -> None:
    start = time.monotonic()
    with within(0.2):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(5)
    assert 0.2 <= time.monotonic() - start < 0.5


def test_the_limit_of_the_whole_holds_on() -> None:
    start = time.monotonic()
    with pytest.raises(LimitError):
        _two_parts(start)
    assert time.monotonic() - start < 0.9


def _two_parts(start: float) -> None:
    with interruptible(0.4):
        with within(0.1):
            time.sleep(5)
        assert time.monotonic() - start < 0.3
        time.sleep(5)
