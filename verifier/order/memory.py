"""What buffers hold while a machine runs, and what is seen of it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from shardproof.verifier.order import events as ev
from shardproof.verifier.order.printing import show_event

Unit = tuple[int, int, int]
Cell = tuple[int, str, int]
"""(rank or -1 where shared, buffer, number of the piece)."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One thing that went wrong on the way: which events, and what was seen."""

    kind: str
    """`overlap`, `stale`, `undefined`, `message` or `mark`."""
    unit: Unit
    other: Unit | None
    text: str


class Memory:
    """Who wrote each piece of each buffer last, and who uses it now."""

    def __init__(self, program: ev.TimeProgram) -> None:
        self.program = program
        self.ranks = {item.rank: item for item in program.ranks}
        self.sights: list[Sight] = []
        self._content: dict[Cell, Unit] = {}
        self._users: dict[Cell, dict[Unit, bool]] = {}
        self._written = _written(program)
        self._cuts = _cuts(program)

    def copy(self) -> Memory:
        other = copy(self)
        other.sights = list(self.sights)
        other._content = dict(self._content)
        other._users = {cell: dict(users) for cell, users in self._users.items()}
        return other

    def _cells(self, rank: int, access: ev.Access) -> list[Cell]:
        owner = -1 if access.buffer in self.program.shared else rank
        cuts = self._cuts[owner, access.buffer]
        if access.span is None:
            return [(owner, access.buffer, piece) for piece in range(max(1, len(cuts) - 1))]
        lo, hi = access.span
        return [(owner, access.buffer, piece) for piece, cut in enumerate(cuts) if lo <= cut < hi]

    def enter(self, unit: Unit, event: ev.Event) -> None:
        for access, writes in ev.accesses(event):
            for cell in self._cells(unit[0], access):
                users = self._users.setdefault(cell, {})
                for other, other_writes in users.items():
                    if other != unit and (writes or other_writes):
                        text = f"{self.name(unit)} {_verb(writes)} {cell[1]} while "
                        text += f"{self.name(other)} {_verb(other_writes)} it"
                        self.sights.append(Sight("overlap", unit, other, text))
                users[unit] = users.get(unit, False) or writes

    def leave(self, unit: Unit, event: ev.Event) -> None:
        for access, writes in ev.accesses(event):
            for cell in self._cells(unit[0], access):
                if not writes:
                    self._look(unit, access, cell)
        for access, writes in ev.accesses(event):
            for cell in self._cells(unit[0], access):
                self._users[cell].pop(unit, None)
                if writes:
                    self._write(unit, event, cell)

    def _look(self, unit: Unit, access: ev.Access, cell: Cell) -> None:
        """A read sees what was written last."""
        seen = self._content.get(cell)
        head = f"{self.name(unit)} reads {cell[1]}"
        if seen is None:
            held = access.buffer in self.ranks[unit[0]].holds
            if access.of:
                text = f"{head} before {access.of} has written it"
                self.sights.append(Sight("stale", unit, None, text))
            elif cell[:2] in self._written and not held:
                text = f"{head} before anything is written to it"
                self.sights.append(Sight("undefined", unit, None, text))
            return
        writer = self.ranks[seen[0]].events[seen[1]]
        if isinstance(writer, ev.Alloc | ev.Free):
            text = f"{head} after {show_event(writer)}: what is there is undefined"
            self.sights.append(Sight("undefined", unit, seen, text))
        elif access.of and (writer.label != access.of or seen[0] != unit[0]):
            text = f"{head}, written by {self.name(seen)}, not by {access.of}"
            self.sights.append(Sight("stale", unit, seen, text))

    def _write(self, unit: Unit, event: ev.Event, cell: Cell) -> None:
        before = self._content.get(cell)
        freed = before is not None and isinstance(self.ranks[before[0]].events[before[1]], ev.Free)
        if before is not None and freed and not isinstance(event, ev.Alloc):
            text = f"{self.name(unit)} writes {cell[1]} after {self.name(before)}"
            self.sights.append(Sight("undefined", unit, before, text))
        self._content[cell] = unit

    def name(self, unit: Unit) -> str:
        event = self.ranks[unit[0]].events[unit[1]]
        leaf = ev.leaves(event)[max(unit[2], 0)]
        return f"rank {unit[0]}'s {leaf.label or show_event(leaf)}"


def _cuts(program: ev.TimeProgram) -> dict[tuple[int, str], list[int]]:
    """Where the spans of accesses cut each buffer into pieces; a piece begins at each cut."""
    out: dict[tuple[int, str], set[int]] = {}
    for item in program.ranks:
        for event in item.events:
            for access, _ in ev.accesses(event):
                owner = -1 if access.buffer in program.shared else item.rank
                cuts = out.setdefault((owner, access.buffer), {0})
                if access.span:
                    cuts.update(access.span)
    return {key: sorted(cuts) for key, cuts in out.items()}


def _written(program: ev.TimeProgram) -> set[tuple[int, str]]:
    return {
        (-1 if access.buffer in program.shared else item.rank, access.buffer)
        for item in program.ranks
        for event in item.events
        for access, writes in ev.accesses(event)
        if writes
    }


def _verb(writes: bool) -> str:
    return "writes" if writes else "reads"
