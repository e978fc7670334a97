"""Which mesh dims a process group runs along, by the global ranks in it, and which groups a rank
makes and destroys: each member waits until the others do so too.

PyTorch names a group by how many were made before it. A rank that makes one more than the others
gives all later ones other names, and members of unlike names never meet.
"""

# pyright: basic

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import combinations, permutations, product
from typing import Any

import torch.distributed as dist

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.ranks.result import NEW_GROUP, Event
from shardproof.verifier.kernel.program.types import Mesh


@cache
def _members(mesh: Mesh, rank: int, dims: tuple[str, ...]) -> tuple[int, ...]:
    """Global ranks that differ from `rank` in these dims alone, the first dim outermost."""
    stride: dict[str, int] = {}
    step = 1
    for name, size in reversed(mesh.dims):
        stride[name] = step
        step *= size
    base = rank - sum(stride[d] * ((rank // stride[d]) % mesh[d]) for d in dims)
    places = product(*(range(mesh[d]) for d in dims))
    return tuple(base + sum(stride[d] * c for d, c in zip(dims, at, strict=True)) for at in places)


def dims_of(ranks: Sequence[int], rank: int, mesh: Mesh) -> tuple[str, ...] | None:
    """The mesh dims whose slice at `rank` is this group, in the group's order; None where the
    group is no such slice. A group of one rank is along no dim."""
    group = tuple(ranks)
    if group == (rank,):
        return ()
    names = [name for name, size in mesh.dims if size > 1]
    for count in range(1, len(names) + 1):
        for chosen in combinations(names, count):
            for order in permutations(chosen):
                if _members(mesh, rank, order) == group:
                    return order
    return None


def slices(mesh: Mesh, rank: int) -> list[tuple[str, list[int]]]:
    """The group of each mesh dim at a rank, for messages."""
    return [(name, list(_members(mesh, rank, (name,)))) for name, size in mesh.dims if size > 1]


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
