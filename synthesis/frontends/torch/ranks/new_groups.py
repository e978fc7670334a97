"""Process groups that a rank makes and destroys: each member waits until the others do so too.

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

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.ranks.result import NEW_GROUP, Event

_c10d: Any = dist.distributed_c10d
DESTROYED = "destroy_process_group"


@contextmanager
def noted(events: list[Event], places: Places) -> Iterator[None]:
    """Groups that are made or destroyed within are events: that this rank does it, and waits for
    the members.

    Raises:
        CaptureError: one is destroyed that the module did not make, or of which a collective is
            still in flight.
    """
    original, unregister = _c10d._new_group_with_tag, _c10d._unregister_process_group

    def make(*args: Any, **kwargs: Any) -> Any:
        group = original(*args, **kwargs)
        if isinstance(group, dist.ProcessGroup):
            ranks = tuple(dist.get_process_group_ranks(group))
            place = places.of(places.frame(sys._getframe()))
            number = len(events)
            events.append(Event("meet", ranks, NEW_GROUP, 0, *place, group=group.group_name))
            events.append(Event("wait", (), "", number, *place))
        return group

    def destroy(name: str) -> None:
        place = places.of(places.frame(sys._getframe()))
        met = [(n, e) for n, e in enumerate(events) if e.kind == "meet" and e.group == name]
        waited = {e.of for e in events if e.kind == "wait"}
        busy = any(n not in waited for n, _ in met)
        if busy or not any(e.what == NEW_GROUP for _, e in met):
            file, line, text = place
            raise CaptureError(
                "a process group is destroyed "
                + ("while its collective is in flight" if busy else "that others may use"),
                file=file,
                line=line,
                text=text,
                hint="destroy groups that the module made, after their collectives",
            )
        number = len(events)
        events.append(Event("meet", met[0][1].ranks, DESTROYED, 0, *place, group=name))
        events.append(Event("wait", (), "", number, *place))
        unregister(name)

    _c10d._new_group_with_tag, _c10d._unregister_process_group = make, destroy
    try:
        yield
    finally:
        _c10d._new_group_with_tag, _c10d._unregister_process_group = original, unregister
