"""The process groups that calls go over, and which calls are sampled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from verifier.fingerprint.mix import key as make_key


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

    __slots__ = ("calls", "draw", "due", "early")

    def __init__(self, draw: Draw, early: int = 0) -> None:
        self.draw = draw
        self.early = early
        """So many at first are more than counted."""
        self.calls = 0
        self.due = 0 if early else draw.next(0)
        """Calls before this one are only counted."""

    def looked_at(self, number: int) -> bool:
        """Whether this call is looked at; it sets which is next, so ask once for every due one."""
        after = number + 1
        self.due = max(self.due, after if after < self.early else self.draw.next(after))
        return self.draw.takes(number)


@dataclass
class Group:
    """One process group, and how many calls went over it."""

    name: str
    ranks: tuple[int, ...]
    """Global ranks."""
    me: int
    uid: int
    lane: Lane
    """Its collectives."""
    everyone: bool = False
    """Whether all ranks of the job are in it."""
    any_source: bool = False
    """Whether this rank received from any source: which message was the how many-th of its sender
    is not known from there on."""
    pairs: dict[tuple[int, int, int], Lane] = field(default_factory=dict[Any, Any])

    @property
    def size(self) -> int:
        return len(self.ranks)

    def messages(self, sender: int, receiver: int, tag: int) -> Lane:
        """The messages between two ranks with this tag."""
        pair = (sender, receiver, tag)
        found = self.pairs.get(pair)
        if found is None:
            draw = Draw(make_key(self.uid, *pair), self.lane.draw.every)
            found = self.pairs.setdefault(pair, Lane(draw))
        return found


def group_of(pg: Any, seed: int, every: int, early: int) -> Group | None:
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
    lane = Lane(Draw(uid, every), early)
    return Group(shown.removeprefix("mesh_"), ranks, ranks.index(mine), uid, lane, everyone)
