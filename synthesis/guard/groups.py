"""The process groups that calls go over, and which calls are sampled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from verifier.fingerprint.mix import key as make_key


@dataclass
class Draw:
    """Which calls are looked at: one of each `every` in a row, drawn anew each time, so that a
    period of the program cannot hide a call for good. The same on all ranks."""

    uid: int
    every: int
    _window: int = -1
    _pick: int = 0

    def takes(self, number: int) -> bool:
        """Whether call `number` is looked at."""
        if self.every <= 1:
            return True
        window, place = divmod(number, self.every)
        if window != self._window:
            self._window, self._pick = window, make_key(self.uid, window) % self.every
        return place == self._pick


@dataclass
class Group:
    """One process group, and how many calls went over it."""

    name: str
    ranks: tuple[int, ...]
    """Global ranks."""
    me: int
    uid: int
    draw: Draw
    calls: int = 0
    pairs: dict[tuple[int, int, int], tuple[int, Draw]] = field(default_factory=dict[Any, Any])
    """Messages by (sender, receiver, tag)."""
    everyone: bool = False
    """Whether all ranks of the job are in it."""
    any_source: bool = False
    """Whether this rank received from any source: which message was the how many-th of its sender
    is not known from there on."""

    @property
    def size(self) -> int:
        return len(self.ranks)

    def next_call(self) -> int:
        """The number of this collective call in the group."""
        self.calls += 1
        return self.calls - 1

    def next_message(self, sender: int, receiver: int, tag: int) -> tuple[int, bool]:
        """The number of this message between two ranks, and whether it is looked at."""
        pair = (sender, receiver, tag)
        if pair not in self.pairs:
            self.pairs[pair] = (0, Draw(make_key(self.uid, *pair), self.draw.every))
        number, draw = self.pairs[pair]
        self.pairs[pair] = (number + 1, draw)
        return number, draw.takes(number)


def group_of(pg: Any, seed: int, every: int) -> Group | None:
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
    return Group(
        shown.removeprefix("mesh_"), ranks, ranks.index(mine), uid, Draw(uid, every),
        everyone=everyone,
    )  # fmt: skip
