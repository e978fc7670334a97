"""The process groups that calls go over, and which calls are sampled."""

import sys
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from shardproof.synthesis.guard import private
from shardproof.synthesis.guard.fingerprint.mix import key as make_key


@dataclass(frozen=True)
class Draw:
    """Which calls are looked at: one of each `every` in a row, drawn anew each time, so that a
    period of the program cannot hide a call for good. The same on all ranks."""

    uid: int
    every: int

    def pick(self, window: int) -> int:
        """The number of the call that is looked at among `every` in a row, the window-th such."""
        if self.every <= 1:
            return window
        return window * self.every + make_key(self.uid, window) % self.every

    def takes(self, number: int) -> bool:
        """Whether call `number` is looked at."""
        return self.pick(number // self.every) == number

    def next(self, number: int) -> int:
        """The first call that is looked at, of `number` and those after it."""
        window = number // self.every
        pick = self.pick(window)
        return pick if pick >= number else self.pick(window + 1)


class Lane:
    """Calls that come one after another in the same order on all ranks that make them: those of a
    group, or messages between two ranks. Numbers are given out under the guard's lock."""

    __slots__ = ("calls", "draw", "due", "early", "most")

    def __init__(self, draw: Draw, early: int = 0, most: int = sys.maxsize) -> None:
        self.draw = draw
        self.early = early
        """So many at first are more than counted."""
        self.most = most
        """Calls from here on are only counted."""
        self.calls = 0
        self.due = 0 if early else draw.next(0)
        """Calls before this one are only counted."""

    def looked_at(self, number: int) -> bool:
        """Whether this call is looked at; it sets which is next, so ask once for every due one."""
        after = number + 1
        after = after if after < self.early else self.draw.next(after)
        self.due = max(self.due, after if after < self.most else sys.maxsize)
        return self.draw.takes(number)


@dataclass
class Group:
    """One process group, and how many calls went over it."""

    name: str
    ranks: tuple[int, ...]
    """Global ranks."""
    me: int
    uid: int
    pg: Any
    every: int
    """One message of so many is looked at, of those between two ranks."""
    born: int
    """The phase in which it was made, 0 where that was before the guard."""
    origin: int = 0
    """What its backends had counted when the guard began to see its messages."""
    everyone: bool = False
    """Whether all ranks of the job are in it."""
    phase: int = -1
    """The phase that `lane` is of."""
    base: int = 0
    """Where this rank was in the group (`place`) when this phase began; below 0 where only the
    calls that were seen can tell."""
    calls: int = 0
    """Calls that were seen, in phases before."""
    lane: Lane = field(default_factory=lambda: Lane(Draw(0, 1)))
    """Its collectives of this phase."""
    any_source: bool = False
    """Whether this rank received from any source: which message was the how many-th of its sender
    is not known from there on."""
    counting: frozenset[str] = frozenset()
    """The kinds of devices whose backends count messages as calls."""
    exchanged: int = 0
    """What its backends counted since then of messages and monitored barriers: ranks differ in how
    many of them they take part in."""
    pairs: dict[tuple[int, int, int], Lane] = field(default_factory=dict[Any, Any])

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def seen(self) -> int:
        """Collectives that were seen."""
        return self.calls + self.lane.calls

    @property
    def place(self) -> int:
        """How many collectives this rank has called in the group, as its backend counts them; -1
        where it does not."""
        counted = private.counted(self.pg)
        if counted < 0:
            return counted
        return counted - self.origin - self.exchanged

    def open(self, phase: int, every: int, early: int, most: int) -> None:
        """Count collectives anew, of which at most so many may be looked at. Their identity has the
        phase and `base` in it: ranks that began at different calls have no call in common, and none
        is compared with another."""
        self.calls = self.seen
        place = self.place
        self.phase, self.base = phase, place if place >= 0 else -2 - self.calls
        draw = Draw(make_key(self.uid, self.base), every)
        self.lane = Lane(draw, max(0, early - self.calls), most)

    def messages(self, sender: int, receiver: int, tag: int) -> Lane:
        """The messages between two ranks with this tag."""
        pair = (sender, receiver, tag)
        found = self.pairs.get(pair)
        if found is None:
            draw = Draw(make_key(self.uid, *pair), self.every)
            found = self.pairs.setdefault(pair, Lane(draw))
        return found


def group_of(pg: Any, seed: int, every: int, born: int, origin: int) -> Group | None:
    """The group, None where it is no group of this job or this rank is alone in it."""
    try:
        ranks = tuple(dist.get_process_group_ranks(pg))
    except (KeyError, ValueError, RuntimeError):
        return None
    mine = dist.get_rank()
    if mine not in ranks or len(ranks) < 2:
        return None
    name = str(getattr(pg, "group_desc", "") or pg.group_name)
    shown = str(pg.group_name) if name == "undefined" else name
    uid = make_key(seed, "group", str(pg.group_name), *ranks)
    everyone = len(ranks) == dist.get_world_size()
    me = ranks.index(mine)
    return Group(
        shown.removeprefix("mesh_"), ranks, me, uid, pg, every, born, origin, everyone,
        counting=private.counting_messages(pg),
    )  # fmt: skip
