"""Runs the communication of every rank alone: who waits for whom, and for ever.

Messages are buffered: a send never waits. A collective runs once all the ranks in its list are at
a call with the same list, in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from verifier.ingest.classes import TextClass, actual
from verifier.ingest.form import Lines, keys
from verifier.ingest.groups import Grid


class Event(NamedTuple):
    """One call of a rank that has to do with others."""

    kind: str
    """`collective`, `send` or `recv`."""
    line: int
    members: tuple[int, ...] = ()
    call: str = ""
    """Of a collective: the op and how it reduces."""
    peer: int = -1
    tag: int = -1


SILENT = ("shard_slice", "on_coord")
"""Collectives in which nothing is sent: they wait for nobody."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """A rank that waits for ever."""

    owner: TextClass
    row: int
    line: int
    message: str


def stuck(classes: Sequence[TextClass], table: Lines, grid: Grid) -> list[Stuck]:
    """Ranks that wait for ever, those that others wait for first; none where every rank ends."""
    events: list[list[Event]] = [[] for _ in range(grid.size)]
    place: dict[int, tuple[TextClass, int]] = {}
    lists: dict[tuple[int, ...], tuple[int, ...]] = {}
    for owner in classes:
        for row, rank in enumerate(owner.ranks):
            place[int(rank)] = (owner, row)
        for j, line in enumerate(owner.lines):
            names = keys(line.tokens)
            group = [i for i, n in enumerate(names) if n == "ranks"]
            peer = [i for i, n in enumerate(names) if n in ("to", "from")]
            if not group and not peer:
                continue
            values = table.numbers(owner.rows[:, j], len(names))
            tag = values[:, names.index("tag")] if "tag" in names else np.full(len(values), -1)
            op = line.tokens[line.tokens.index("=") + 1] if "=" in line.tokens else ""
            op = "send" if line.tokens[0] == "send" else op
            if op in SILENT:
                continue
            call = _call(line.tokens)
            members, which = np.unique(values[:, group], axis=0, return_inverse=True)
            named = [lists.setdefault(t, t) for t in (tuple(map(int, m)) for m in members)]
            for row, rank in enumerate(owner.ranks):
                if group:
                    one = named[int(which.ravel()[row])]
                    events[int(rank)].append(Event("collective", j, one, call))
                elif op in ("send", "recv"):
                    other, mark = int(values[row, peer[0]]), int(tag[row])
                    events[int(rank)].append(Event(op, j, peer=other, tag=mark))
    at = _run(events, grid.size)
    left = [r for r in range(grid.size) if at[r] < len(events[r])]
    return [_waits(r, events, at, place, table, grid.size) for r in left]


def _call(tokens: tuple[str, ...]) -> str:
    """The op and how it reduces."""
    start = tokens.index("=") + 1 if "=" in tokens else 0
    op = tokens[start] if start < len(tokens) else ""
    return f"{op} {tokens[tokens.index('reduce') + 2]}" if "reduce" in tokens[:-2] else op


def _run(events: list[list[Event]], size: int) -> list[int]:
    at = [0] * size
    arrived: dict[tuple[tuple[int, ...], str], set[int]] = {}
    mail: dict[tuple[int, int, int], int] = {}
    waiting: dict[tuple[int, int, int], int] = {}
    sets: dict[tuple[int, ...], frozenset[int]] = {}
    ready = deque(range(size))
    while ready:
        rank = ready.popleft()
        while at[rank] < len(events[rank]):
            event = events[rank][at[rank]]
            if event.kind == "send":
                channel = (rank, event.peer, event.tag)
                mail[channel] = mail.get(channel, 0) + 1
                woken = waiting.pop(channel, None)
                if woken is not None:
                    ready.append(woken)
            elif event.kind == "recv":
                channel = (event.peer, rank, event.tag)
                if not mail.get(channel):
                    waiting[channel] = rank
                    break
                mail[channel] -= 1
            else:
                members, key = event.members, (event.members, event.call)
                needed = sets.setdefault(members, frozenset(members))
                if rank not in needed or len(needed) < len(members):
                    break
                here = arrived.setdefault(key, set())
                here.add(rank)
                if len(here) < len(needed):
                    break
                del arrived[key]
                for other in here:
                    if other != rank:
                        at[other] += 1
                        ready.append(other)
            at[rank] += 1
    return at


def _waits(
    rank: int,
    events: list[list[Event]],
    at: list[int],
    place: dict[int, tuple[TextClass, int]],
    table: Lines,
    size: int,
) -> Stuck:
    event = events[rank][at[rank]]
    line, members = event.line, event.members
    owner, row = place[rank]

    def doing(other: int) -> str:
        if not 0 <= other < size:
            return f"there is no rank {other}"
        if at[other] == len(events[other]):
            return f"rank {other} has ended"
        theirs, their_row = place[other]
        shown = actual(theirs, their_row, events[other][at[other]].line, table)
        return f"rank {other} is at `{shown}`"

    if event.kind == "recv":
        what = f"waits for a message from rank {event.peer} for ever; {doing(event.peer)}"
        return Stuck(owner, row, line, what)
    if rank not in members:
        return Stuck(owner, row, line, f"calls a collective of ranks {_few(members)} without it")
    if len(set(members)) < len(members):
        return Stuck(owner, row, line, f"names a rank twice in {_few(members)}")
    missing = next(
        (
            m
            for m in members
            if not 0 <= m < size
            or at[m] == len(events[m])
            or (events[m][at[m]].members, events[m][at[m]].call) != (members, event.call)
        ),
        rank,
    )
    what = f"waits in a collective of ranks {_few(members)} for ever; {doing(missing)}"
    return Stuck(owner, row, line, what)


def _few(members: Sequence[int]) -> str:
    shown = ", ".join(map(str, members[:8]))
    return f"[{shown}, ... {len(members)} ranks]" if len(members) > 8 else f"[{shown}]"
