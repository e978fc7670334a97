"""Which calls of the ranks belong together: the k-th on a communicator, the k-th on a channel.

There are no wildcards, so the matching is the same in every execution.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from shardproof.verifier.kernel.program.types import Source
from shardproof.verifier.order import events as ev
from shardproof.verifier.order.printing import show_event

Unit = tuple[int, int, int]
"""(rank, index of the event, part of a group or -1)."""
Step = tuple[int, int, int, str]
"""(rank, index of the event on it, part of a group or -1, `start` or `end`)."""


@dataclass(frozen=True, slots=True)
class Place:
    """One event that a violation is about."""

    rank: int
    index: int
    event: ev.Event
    part: int = -1

    @property
    def source(self) -> Source:
        return self.event.source

    def __str__(self) -> str:
        at = f"  {self.source}" if str(self.source) else ""
        return f"rank {self.rank}: {show_event(self.event)}{at}"


@dataclass(frozen=True, slots=True)
class Fault:
    """Calls that do not belong together: which check says so, and why."""

    check: str
    message: str
    places: tuple[Place, ...]


@dataclass
class Matching:
    """Calls that meet, calls that meet nobody, and why."""

    collectives: list[tuple[Unit, ...]] = field(default_factory=list[tuple[Unit, ...]])
    """Members in the order of the communicator."""
    pairs: list[tuple[Unit, Unit]] = field(default_factory=list[tuple[Unit, Unit]])
    """(send, receive)."""
    alone: set[Unit] = field(default_factory=set[Unit])
    """Calls that never end."""
    faults: list[Fault] = field(default_factory=list[Fault])


def match(program: ev.TimeProgram) -> Matching:
    """Match the calls of a program without conditions."""
    out = Matching()
    _collectives(program, out)
    _transfers(program, out)
    return out


def _collectives(program: ev.TimeProgram, out: Matching) -> None:
    calls: dict[tuple[str, int], list[Place]] = {}
    for item in program.ranks:
        for index, event in enumerate(item.events):
            if isinstance(event, ev.Collective):
                calls.setdefault((event.comm, item.rank), []).append(Place(item.rank, index, event))
    views = {item.rank: dict(item.groups) for item in program.ranks}
    agreed: dict[tuple[str, tuple[int, ...]], None] = {}
    for (comm, rank), places in calls.items():
        group = views[rank].get(comm, ())
        fault = _view(comm, rank, group, views, places)
        if fault is None:
            agreed[comm, group] = None
        else:
            out.faults.append(fault)
            out.alone.update(_unit(place) for place in places)
    for comm, group in agreed:
        sequences = [calls.get((comm, rank), []) for rank in group]
        _sequences(comm, group, sequences, out)


def _view(
    comm: str,
    rank: int,
    group: tuple[int, ...],
    views: dict[int, dict[str, tuple[int, ...]]],
    places: list[Place],
) -> Fault | None:
    """Whether all members mean the same ranks in the same order."""
    check, head = "communicator", places[:1]
    if rank not in group:
        why = f"rank {rank} calls on {comm}, which has ranks {_list(group)}"
        return Fault(check, why if group else f"rank {rank} is in no group {comm}", tuple(head))
    for other in group:
        theirs = views.get(other, {}).get(comm, ())
        if other not in views:
            why = f"{comm} has rank {other}, which runs nothing"
            return Fault(check, why, tuple(head))
        if theirs != group:
            what = "the order of its ranks" if sorted(theirs) == sorted(group) else "its ranks"
            why = f"ranks {rank} and {other} disagree on {comm}: {what}, {_list(group)} and "
            return Fault(check, why + (_list(theirs) or "none"), tuple(head))
    return None


def _sequences(
    comm: str, group: tuple[int, ...], sequences: list[list[Place]], out: Matching
) -> None:
    longest = max(map(len, sequences))
    for k in range(longest):
        row = [calls[k] if k < len(calls) else None for calls in sequences]
        fault = _row(comm, group, k, row)
        if fault is not None:
            out.faults.append(fault)
            out.alone.update(_unit(place) for calls in sequences for place in calls[k:])
            return
        out.collectives.append(tuple(_unit(place) for place in row if place is not None))


def _row(comm: str, group: tuple[int, ...], k: int, row: list[Place | None]) -> Fault | None:
    """The k-th calls of all members."""
    there = [place for place in row if place is not None]
    missing = [rank for rank, place in zip(group, row, strict=True) if place is None]
    if missing:
        why = f"call {k + 1} on {comm} is made by {_ranks(there)}, not by rank {missing[0]}"
        return Fault("collective_order", why, tuple(there[:1]))
    first = there[0]
    for place in there[1:]:
        pair = (first, place)
        a, b = first.event, place.event
        assert isinstance(a, ev.Collective)
        assert isinstance(b, ev.Collective)
        at = f"call {k + 1} on {comm} of ranks {first.rank} and {place.rank}"
        if a.op != b.op or a.root != b.root:
            kinds = f"{_kind(a)} and {_kind(b)}"
            return Fault("collective_order", f"{at} is {kinds}", pair)
        if a.size is not None and b.size is not None and a.size != b.size:
            why = f"{at} has operands of size {a.size} and {b.size}"
            return Fault("collective_size", why, pair)
    return None


def _kind(event: ev.Collective) -> str:
    return event.op if event.root is None else f"{event.op} from root {event.root}"


def _endpoints(program: ev.TimeProgram) -> Iterator[tuple[Place, ev.Transfer]]:
    for item in program.ranks:
        for index, event in enumerate(item.events):
            for part, leaf in enumerate(ev.leaves(event)):
                if isinstance(leaf, ev.Transfer):
                    yield Place(item.rank, index, leaf, part if leaf is not event else -1), leaf


def _transfers(program: ev.TimeProgram, out: Matching) -> None:
    present = {item.rank for item in program.ranks}
    sends: dict[tuple[int, int, str], list[Place]] = {}
    recvs: dict[tuple[int, int, str], list[Place]] = {}
    for place, event in _endpoints(program):
        if event.peer == place.rank or event.peer not in present:
            why = "itself" if event.peer == place.rank else "a rank that runs nothing"
            word = "sends to" if isinstance(event, ev.Send) else "receives from"
            out.faults.append(Fault("p2p_peer", f"rank {place.rank} {word} {why}", (place,)))
            out.alone.add(_unit(place))
        elif isinstance(event, ev.Send):
            sends.setdefault((place.rank, event.peer, event.channel), []).append(place)
        elif isinstance(event, ev.Recv):
            recvs.setdefault((event.peer, place.rank, event.channel), []).append(place)
    for key in sorted({*sends, *recvs}):
        _channel(key, sends.get(key, []), recvs.get(key, []), out)


def _channel(
    key: tuple[int, int, str], sends: list[Place], recvs: list[Place], out: Matching
) -> None:
    src, dst, name = key
    via = f" via {name}" if name else ""
    for k, (send, recv) in enumerate(zip(sends, recvs, strict=False)):
        out.pairs.append((_unit(send), _unit(recv)))
        a, b = send.event, recv.event
        assert isinstance(a, ev.Transfer)
        assert isinstance(b, ev.Transfer)
        at = f"send {k + 1} from rank {src} to rank {dst}{via}"
        if a.tag != b.tag:
            why = f"{at} carries {a.tag or 'nothing named'}, its receive expects "
            out.faults.append(Fault("p2p_order", why + (b.tag or "nothing named"), (send, recv)))
        elif a.size is not None and b.size is not None and a.size != b.size:
            why = f"{at} has size {a.size}, its receive {b.size}"
            out.faults.append(Fault("p2p_size", why, (send, recv)))
    short = min(len(sends), len(recvs))
    left = sends[short:] or recvs[short:]
    if left:
        why = f"rank {src} sends {len(sends)} times to rank {dst}{via}, which receives "
        out.faults.append(Fault("p2p_count", f"{why}{len(recvs)} times", (left[0],)))
        out.alone.update(_unit(place) for place in left)


def _unit(place: Place) -> Unit:
    return place.rank, place.index, place.part


def _list(ranks: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, ranks))})" if ranks else ""


def _ranks(places: list[Place]) -> str:
    ranks = [place.rank for place in places]
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
