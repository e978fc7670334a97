"""The end of a rank's process, which is not that of the others: an error, or a rank that is done
before them."""

import time
from typing import Any

PATIENCE = 5.0
"""Seconds that a rank whose program is over waits for the others to come to their ends."""
LEFT = "its program is over, and those of the others were not"


def all_come(store: Any, size: int) -> bool:
    """Whether all ranks are at the ends of their programs, the same on all that are: where one of
    them does not come in time, none is waited for."""
    end = time.monotonic() + PATIENCE
    try:
        there = store.add("over", 1)
        while there < size and time.monotonic() < end and not store.check(["parted"]):
            time.sleep(0.02)
            there = store.add("over", 0)
        mine = "together" if there >= size else "alone"
        return store.compare_set("parted", "", mine).decode() == "together"
    except RuntimeError:  # the rank that holds the store is gone
        return False


def last_words(error: BaseException) -> str:
    """An error of the program's own, for ranks that will miss this one."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
