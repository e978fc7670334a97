"""Runs the communication of every rank alone: who waits for whom, and for ever.

Messages are buffered: a send never waits. A collective runs once all the ranks in its list are at
a call with the same list, in the same order. Repeated blocks are run step by step.

Ranks of one *cell* do the same: along each mesh dim, coordinates are alike where no class of ranks
tells them apart and no list or peer names one. Exchanging two of them maps the ranks onto
themselves and every call onto a call, and which ranks wait for ever does not depend on the order
of steps; so where one rank of a cell comes to, all do. One rank stands for its cell.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shardproof.synthesis.frontends.rank_programs.classes import Line, TextClass, actual
from shardproof.synthesis.frontends.rank_programs.form import Ints, Lines, keys
from shardproof.synthesis.frontends.rank_programs.groups import Grid
from shardproof.verifier.ops.classes import SILENT

MAX_STEPS = 5_000_000
"""So many calls of cells are run; more end without an answer."""
"""Collectives in which nothing is sent: they wait for nobody."""


class Call(NamedTuple):
    """A line on which ranks of a class have to do with others."""

    kind: str
    """`collective`, `send` or `recv`."""
    line: int
    what: str = ""
    """Of a collective: the op and how it reduces."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """A rank that waits for ever."""

    owner: TextClass
    row: int
    line: int
    message: str


class _Ranks:
    """One rank of each cell, with what it calls."""

    def __init__(self, classes: Sequence[TextClass], table: Lines, grid: Grid) -> None:
        self.table, self.grid = table, grid
        self.place = {int(r): (c, row) for c in classes for row, r in enumerate(c.ranks)}
        self.calls = {
            id(owner): list(_calls(owner.lines, 0, len(owner.lines))) for owner in classes
        }
        self.first = _cells(classes, table, grid)
        """For each rank, the first one of its cell."""
        self.lists: dict[tuple[int, int], tuple[int, ...]] = {}
        self.reached: dict[tuple[int, ...], tuple[int, ...]] = {}

    def numbers(self, rank: int, line: int) -> tuple[tuple[str, ...], Ints]:
        owner, row = self.place[rank]
        names = keys(owner.lines[line].tokens)
        return names, self.table.numbers(owner.rows[row : row + 1, line], len(names))[0]

    def members(self, rank: int, line: int) -> tuple[int, ...]:
        """The list of a collective."""
        key = rank, line
        if key not in self.lists:
            names, values = self.numbers(rank, line)
            self.lists[key] = tuple(
                int(v) for v, name in zip(values, names, strict=True) if name == "ranks"
            )
        return self.lists[key]

    def cells(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """The ranks that stand for these; nothing where one is no rank, or is there twice."""
        if members not in self.reached:
            fits = len(set(members)) == len(members)
            fits = fits and all(0 <= m < self.grid.size for m in members)
            found = {int(self.first[m]) for m in members} if fits else ()
            self.reached[members] = tuple(sorted(found))
        return self.reached[members]

    def peer(self, rank: int, line: int) -> tuple[int, int]:
        """The other rank of a message, and the tag (-1: none)."""
        names, values = self.numbers(rank, line)
        other = next(int(v) for v, n in zip(values, names, strict=True) if n in ("to", "from"))
        return other, int(values[names.index("tag")]) if "tag" in names else -1

    def stands(self, rank: int) -> int:
        """The rank that stands for this one; the rank itself where there is no such rank."""
        return int(self.first[rank]) if 0 <= rank < self.grid.size else rank


def stuck(classes: Sequence[TextClass], table: Lines, grid: Grid) -> list[Stuck]:
    """Ranks that wait for ever, one of each cell; none where every rank ends, or where that takes
    too many steps to say."""
    ranks = _Ranks(classes, table, grid)
    states = {int(r): iter(ranks.calls[id(ranks.place[int(r)][0])]) for r in set(ranks.first)}
    steps = sum(len(ranks.calls[id(ranks.place[r][0])]) for r in states)
    if steps > MAX_STEPS:
        return []
    at = _run(ranks, {r: next(calls, None) for r, calls in states.items()}, states)
    return [_waits(r, at, ranks) for r in sorted(at) if at[r] is not None]


def _calls(lines: Sequence[Line], start: int, stop: int) -> Iterator[Call]:
    """The calls of a class in the order in which they are made."""
    i = start
    while i < stop:
        tokens = lines[i].tokens
        if tokens[-1] == "{" and "=" in tokens:
            end = _end(lines, i, stop)
            inner = list(_calls(lines, i + 1, end))
            if inner:
                for _ in range(_length(lines[i])):
                    yield from inner
            i = end + 1
            continue
        names = keys(tokens)
        op = tokens[tokens.index("=") + 1] if "=" in tokens[:-1] and tokens[0][0] == "%" else ""
        op = "send" if tokens[0] == "send" else op
        if "ranks" in names and op not in SILENT:
            yield Call("collective", i, _called(tokens))
        elif op in ("send", "recv") and ("to" in names or "from" in names):
            yield Call(op, i)
        i += 1


def _end(lines: Sequence[Line], start: int, stop: int) -> int:
    depth = 0
    for i in range(start, stop):
        tokens = lines[i].tokens
        depth += (tokens[-1] == "{") - (tokens[0] == "}")
        if depth == 0:
            return i
    return stop


def _length(line: Line) -> int:
    found = dict(zip(keys(line.tokens), line.numbers, strict=False)).get("length")
    return found if isinstance(found, int) else 1


def _called(tokens: tuple[str, ...]) -> str:
    """The op and how it reduces."""
    start = tokens.index("=") + 1 if "=" in tokens else 0
    op = tokens[start] if start < len(tokens) else ""
    return f"{op} {tokens[tokens.index('reduce') + 2]}" if "reduce" in tokens[:-2] else op


def _cells(classes: Sequence[TextClass], table: Lines, grid: Grid) -> Ints:
    """For each rank, the first rank of its cell."""
    owner = np.zeros(grid.size, np.int64)
    for k, one in enumerate(classes):
        owner[one.ranks] = k
    sizes = tuple(int(n) for n in grid.sizes)
    named = _named(classes, table, grid)
    stand: list[Ints] = []
    for i, size in enumerate(sizes):
        apart: dict[bytes, int] = {}
        rows = np.moveaxis(owner.reshape(sizes), i, 0)
        chosen = np.arange(size)
        for c in range(size):
            if c not in named[i]:
                chosen[c] = apart.setdefault(rows[c].tobytes(), c)
        stand.append(chosen)
    out = np.zeros(grid.size, np.int64)
    for i, chosen in enumerate(stand):
        out += chosen[grid.coords[:, i]] * grid.strides[i]
    return out


def _named(classes: Sequence[TextClass], table: Lines, grid: Grid) -> list[set[int]]:
    """Coordinates by mesh dim that a peer, or a list that is no group, names; its own included."""
    out: list[set[int]] = [set() for _ in grid.sizes]
    for owner in classes:
        for j, line in enumerate(owner.lines):
            names = keys(line.tokens)
            stray = line.group is None and "ranks" in names
            talks = "to" in names or "from" in names
            if not stray and not talks:
                continue
            if talks and line.peer is not None:
                k = grid.mesh.names.index(line.peer[0])
                out[k].update(line.peer[1:])
                continue
            at = [i for i, n in enumerate(names) if n in ("ranks", "to", "from")]
            found = table.numbers(owner.rows[:, j], len(names))[:, at]
            held = np.concatenate([owner.ranks, found[(found >= 0) & (found < grid.size)]])
            for k, column in enumerate(grid.of(np.unique(held)).T):
                out[k].update(int(c) for c in np.unique(column))
    return out


def _run(
    ranks: _Ranks, at: dict[int, Call | None], rest: dict[int, Iterator[Call]]
) -> dict[int, Call | None]:
    """Where each rank ends up: the call in which it waits for ever, None at its end."""
    arrived: dict[tuple[tuple[int, ...], str], set[int]] = {}
    mail: dict[tuple[int, int, int], int] = {}
    waiting: dict[tuple[int, int, int], int] = {}
    ready = deque(sorted(at))
    while ready:
        rank = ready.popleft()
        while (call := at[rank]) is not None:
            if call.kind == "send":
                other, tag = ranks.peer(rank, call.line)
                channel = rank, ranks.stands(other), tag
                mail[channel] = mail.get(channel, 0) + 1
                woken = waiting.pop(channel, None)
                if woken is not None:
                    ready.append(woken)
            elif call.kind == "recv":
                other, tag = ranks.peer(rank, call.line)
                channel = ranks.stands(other), rank, tag
                if not mail.get(channel):
                    waiting[channel] = rank
                    break
                mail[channel] -= 1
            else:
                members = ranks.members(rank, call.line)
                cells = ranks.cells(members)
                if rank not in members or not cells:
                    break
                key = cells, f"{call.what} {_order(members, ranks)}"
                here = arrived.setdefault(key, set())
                here.add(rank)
                if len(here) < len(cells):
                    break
                del arrived[key]
                for other in here:
                    if other != rank:
                        at[other] = next(rest[other], None)
                        ready.append(other)
            at[rank] = next(rest[rank], None)
    return at


def _order(members: tuple[int, ...], ranks: _Ranks) -> object:
    """The same for the lists of all members of a group, and for no other list of these cells."""
    dims = ranks.grid.coset(members)
    return members if dims is None else dims


def _waits(rank: int, at: dict[int, Call | None], ranks: _Ranks) -> Stuck:
    call = at[rank]
    assert call is not None
    owner, row = ranks.place[rank]

    def doing(other: int) -> str:
        if not 0 <= other < ranks.grid.size:
            return f"there is no rank {other}"
        theirs = at[ranks.stands(other)]
        if theirs is None:
            return f"rank {other} has ended"
        whose, which = ranks.place[other]
        return f"rank {other} is at `{actual(whose, which, theirs.line, ranks.table)}`"

    if call.kind == "recv":
        peer, _ = ranks.peer(rank, call.line)
        what = f"waits for a message from rank {peer} for ever; {doing(peer)}"
        return Stuck(owner, row, call.line, what)
    members = ranks.members(rank, call.line)
    if rank not in members:
        what = f"calls a collective of ranks {_few(members)} without it"
        return Stuck(owner, row, call.line, what)
    if len(set(members)) < len(members):
        return Stuck(owner, row, call.line, f"names a rank twice in {_few(members)}")

    def joins(other: int) -> bool:
        if not 0 <= other < ranks.grid.size:
            return False
        theirs = at[ranks.stands(other)]
        if theirs is None or (theirs.kind, theirs.what) != (call.kind, call.what):
            return False
        return ranks.members(other, theirs.line) == members

    missing = next((m for m in members if not joins(m)), rank)
    what = f"waits in a collective of ranks {_few(members)} for ever; {doing(missing)}"
    return Stuck(owner, row, call.line, what)


def _few(members: Sequence[int]) -> str:
    shown = ", ".join(map(str, members[:8]))
    return f"[{shown}, ... {len(members)} ranks]" if len(members) > 8 else f"[{shown}]"
