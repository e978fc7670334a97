"""Ranks that are about to meet in different calls find out before they do, and nobody waits for
anybody for good.

Each rank leaves a description of the call in the store and looks who was there first. Of two ranks
that describe different calls the later one sees it, and does not call: no two of them ever meet in
the backend, which may end the process over it. It leaves the verdict in the store. A rank that came
first finds it there while it waits, for the others or for its own call.
"""

import time
from collections.abc import Callable
from typing import Any, NoReturn

from shardproof.synthesis.guard import kernels
from shardproof.synthesis.guard.errors import GuardError
from shardproof.synthesis.guard.groups import Group

COURTESY = 2.0
"""Seconds that a rank waits, in all its first calls together, for the others to come to them. It
then calls with no word of theirs: it may be what they wait for."""
LONGEST = 0.05
"""Seconds between two looks at the store."""


class Meeting:
    """The descriptions of the first calls, in a store that is empty at the start of the run."""

    def __init__(self, store: Any, rank: int, fail: Callable[[str], None]) -> None:
        self._store = store
        self._rank = rank
        self._fail = fail
        """Told the verdict before it is raised."""
        self._left = COURTESY

    def come(self, text: str, group: Group, uid: int, number: int) -> None:
        """Say what this rank is about to call, before it does: call `number` of its group here,
        and `uid` on all ranks.

        Raises:
            GuardError: the verdict of the run, where another rank came with another call.
            RuntimeError: the store is gone.
        """
        place = f"{uid:x}"
        first = self._store.compare_set(place, "", f"{self._rank}: {text}").decode()
        rank, _, said = first.partition(": ")
        if said != text:
            both = sorted([(int(rank), said), (self._rank, text)])
            each = ", ".join(f"rank {r}: {t}" for r, t in both)
            wrong = f"ranks meet in different calls, call {number} of group {group.name}: {each}"
            self._end(self._store.compare_set("wrong", "", wrong).decode())
        self._await(f"{place}/ranks", group.size)

    def _await(self, place: str, size: int) -> None:
        start, pause = time.monotonic(), 1e-4
        there = self._store.add(place, 1)
        while there < size and time.monotonic() - start < self._left:
            self.look()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)
            there = self._store.add(place, 0)
        self._left -= time.monotonic() - start

    def verdict(self) -> str:
        """What a rank left of it, empty where there is none."""
        return self._store.get("wrong").decode() if self._store.check(["wrong"]) else ""

    def look(self) -> None:
        """Raises GuardError with the verdict, where there is one."""
        if found := self.verdict():
            self._end(found)

    def _end(self, verdict: str) -> NoReturn:
        self._fail(verdict)
        raise GuardError(verdict)

    def stay(self, work: Any, wait: Callable[[], Any]) -> Any:
        """Wait for a call of this rank, and return what `wait` does; in slices, as the backend's
        own wait cannot be ended from outside.

        Raises:
            GuardError: ranks turn out to have met in different calls.
        """
        while not kernels.done_within(work, LONGEST):
            self.look()
        return wait()
