"""Process groups that a rank makes: each member waits until the others make it too.

PyTorch names a group by how many were made before it. A rank that makes one more than the others
gives all later ones other names, and members of unlike names never meet.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.ranks.result import NEW_GROUP, Event

_c10d: Any = dist.distributed_c10d


@contextmanager
def noted(events: list[Event], places: Places) -> Iterator[None]:
    """Groups that are made within are events: that this rank makes one, and waits for its
    members."""
    original = _c10d._new_group_with_tag

    def make(*args: Any, **kwargs: Any) -> Any:
        group = original(*args, **kwargs)
        if isinstance(group, dist.ProcessGroup):
            ranks = tuple(dist.get_process_group_ranks(group))
            place = places.of(places.frame(sys._getframe()))
            number = len(events)
            events.append(Event("meet", ranks, NEW_GROUP, 0, *place, group=group.group_name))
            events.append(Event("wait", (), "", number, *place))
        return group

    _c10d._new_group_with_tag = make
    try:
        yield
    finally:
        _c10d._new_group_with_tag = original
