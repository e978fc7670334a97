"""What ranks do in time: which messages belong together, and who waits for whom.

Nothing is taken to be buffered: a message is sent once its receiver has asked for it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.result import BUFFERS, USED, Event

Ranks = Sequence[Sequence[Event]]
"""The events of each rank, in order."""
Key = tuple[tuple[int, ...] | str | int, ...]
COLLECTIVE = "collective"
_ROWS = "contiguous memory"


def refuse_unlike(ranks: Ranks) -> None:
    """Messages between two ranks belong together in order, as NCCL has it, and by tag, as gloo.

    Raises:
        CaptureError: these are not the same, a message is received as another type, or the
            tensors of a collective lie in memory in unlike orders.
    """
    _refuse_unlike_states(ranks)
    sent: dict[Key, Event] = {}
    for rank, events in enumerate(ranks):
        for number, event in _numbered(rank, events):
            if events[number].kind == "send":
                sent[event] = events[number]
    for rank, events in enumerate(ranks):
        for number, key in _numbered(rank, events):
            got, peer = events[number], events[number].ranks[0]
            given = sent.get(key)
            if got.kind == "recv" and given is not None and given.what != got.what:
                raise CaptureError(
                    f"rank {rank} receives {got.what}; rank {peer} sends {given.what} "
                    f"({given.file}:{given.line})",
                    file=got.file,
                    line=got.line,
                    text=got.text,
                    hint="messages between two ranks are held against each other in order: give "
                    "each pair one type, one tag and one group",
                )


def _numbered(rank: int, events: Sequence[Event]) -> list[tuple[int, Key]]:
    """Messages of a rank: the number of the event, and (sender, receiver, how many before)."""
    count: Counter[Key] = Counter()
    out: list[tuple[int, Key]] = []
    for number, event in enumerate(events):
        if event.kind in ("send", "recv"):
            peer = event.ranks[0]
            way = (rank, peer) if event.kind == "send" else (peer, rank)
            out.append((number, (*way, count[way])))
            count[way] += 1
    return out


def _met(events: Sequence[Event], kind: str = "meet") -> dict[int, Key]:
    count: Counter[Key] = Counter()
    out: dict[int, Key] = {}
    for number, event in enumerate(events):
        if event.kind == kind:
            group = (event.ranks, event.group)
            out[number] = (*group, event.what, count[group])
            count[group] += 1
    return out


def _refuse_unlike_states(ranks: Ranks) -> None:
    first: dict[Key, tuple[int, Event]] = {}
    for rank, events in enumerate(ranks):
        for number, key in (*_met(events).items(), *_met(events, "alike").items()):
            event = events[number]
            other, before = first.setdefault(key, (rank, event))
            if before.alike != event.alike:
                raise _unlike((other, before), (rank, event))


def _unlike(one: tuple[int, Event], other: tuple[int, Event]) -> CaptureError:
    (first, before), (second, event) = one, other
    message = (
        f"rank {first} gives a collective a tensor of {before.alike or _ROWS}, rank {second} one "
        f"of {event.alike or _ROWS}: a collective goes by memory, so that others would meet"
    )
    hint = "call it with t.contiguous() on every rank"
    if event.kind == "alike":
        message = (
            f"{event.what} is not alike on rank {first} and rank {second}, and all ranks are given "
            "that of the first"
        )
        hint = "keep a rank's own tensor as no buffer"
        if event.what.startswith(BUFFERS):
            hint += ", or give DistributedDataParallel broadcast_buffers=False"
    if event.what == USED:
        message = (
            f"{event.what} is {before.alike or 'nothing'} on rank {first}, and "
            f"{event.alike or 'nothing'} on rank {second}: a gradient is averaged where any uses it"
        )
        hint = "use the same parameters on every rank"
    return CaptureError(message, file=event.file, line=event.line, text=event.text, hint=hint)


def first_stuck(ranks: Ranks) -> tuple[int, Event, str] | None:
    """A rank that waits for ever, the call that it waits for, and what the ranks wait for."""
    seen = {e.what if e.kind == "meet" else e.kind for events in ranks for e in events}
    named = {(e.ranks, e.group) for events in ranks for e in events if e.kind == "meet"}
    if seen <= {COLLECTIVE, "wait"} and len(named) == len({members for members, _ in named}):
        return None
    keys = [_keys(rank, events) for rank, events in enumerate(ranks)]
    begun: Counter[Key] = Counter()
    at = [0] * len(ranks)
    moved = True
    while moved:
        moved = False
        for rank, events in enumerate(ranks):
            while at[rank] < len(events) and _passes(events[at[rank]], keys[rank], begun):
                begun.update([keys[rank][at[rank]]] if at[rank] in keys[rank] else ())
                at[rank] += 1
                moved = True
    left = {r: ranks[r][es] for r, es in enumerate(at) if es < len(ranks[r])}
    if not left:
        return None
    said = "; ".join(f"rank {r} waits in {_said(ranks[r][e.of])}" for r, e in left.items())
    rank = min(left)
    return rank, ranks[rank][left[rank].of], said


def _keys(rank: int, events: Sequence[Event]) -> Mapping[int, Key]:
    """What each call is a part of, by the number of its event. Collectives of a group are told
    apart elsewhere: here, that a barrier meets a barrier, and each its own group."""
    return {**dict(_numbered(rank, events)), **_met(events)}


def _passes(event: Event, keys: Mapping[int, Key], begun: Counter[Key]) -> bool:
    """Whether a rank goes on: all have begun what it waits for."""
    if event.kind != "wait":
        return True
    key = keys[event.of]
    first = key[0]
    return begun[key] >= (len(first) if isinstance(first, tuple) else 2)


def _said(event: Event) -> str:
    what = f"{event.kind} with rank {event.ranks[0]}"
    if event.kind == "meet":
        group = f" (group {event.group})" if event.what != "barrier" else ""
        what = f"{event.what} of ranks {list(event.ranks)}{group}"
    return f"the {what} of {event.file}:{event.line}"
