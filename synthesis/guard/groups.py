"""The process groups that calls go over, and which calls are sampled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from verifier.fingerprint.mix import key as make_key


@dataclass
class Group:
    """One process group, and how many calls went over it."""

    name: str
    ranks: tuple[int, ...]
    """Global ranks."""
    me: int
    uid: int
    calls: int = 0
    pairs: dict[tuple[int, int, int], int] = field(default_factory=dict[Any, int])
    """Messages by (sender, receiver, tag)."""

    @property
    def size(self) -> int:
        return len(self.ranks)

    def next_call(self) -> int:
        """The number of this collective call in the group."""
        self.calls += 1
        return self.calls - 1

    def next_message(self, sender: int, receiver: int, tag: int) -> int:
        """The number of this message between two ranks."""
        pair = (sender, receiver, tag)
        self.pairs[pair] = self.pairs.get(pair, 0) + 1
        return self.pairs[pair] - 1


def group_of(pg: Any, seed: int) -> Group | None:
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
    return Group(shown.removeprefix("mesh_"), ranks, ranks.index(mine), uid)


def sampled(uid: int, number: int, every: int) -> bool:
    """Whether call `number` is looked at: one of each `every` in a row, drawn anew each time, so
    that a period of the program cannot hide a call for good. The same on all ranks."""
    return every <= 1 or make_key(uid, number // every) % every == number % every
