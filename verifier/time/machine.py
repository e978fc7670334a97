"""A tiny machine that runs events step by step, and sees what goes wrong.

It shares nothing with the graph and the matching: it keeps streams, counters of calls and the
contents of buffers, and asks of each step whether it may happen now. A trace that it accepts is an
execution; what it sees on the way is what the trace shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from verifier.time.events import (
    ROOTED_IN,
    ROOTED_OUT,
    Access,
    Alloc,
    Await,
    Collective,
    Event,
    Free,
    Group,
    Join,
    RankEvents,
    Record,
    Recv,
    Send,
    Sync,
    TimeProgram,
    Transfer,
    Wait,
    accesses,
    handle_of,
    leaves,
)
from verifier.time.printing import show_event
from verifier.time.violation import Step, Trace

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


@dataclass
class Outcome:
    """What an execution showed."""

    sights: list[Sight]
    blocked: list[tuple[Unit, str]]
    """Steps that were due and could not happen, with what they wait for."""
    stuck: bool
    """Something is left and nothing can happen."""
    in_flight: list[Unit]
    """Asynchronous events that have not ended."""
    left_over: list[Unit]
    """Sends and receives, of the whole program, that meet no other."""


@dataclass
class Execution:
    """An execution so far. `enabled()` are the steps that may come next, `do` takes one."""

    program: TimeProgram
    mode: str = "waits"
    started: set[Unit] = field(default_factory=set[Unit])
    ended: set[Unit] = field(default_factory=set[Unit])
    sights: list[Sight] = field(default_factory=list[Sight])

    def __post_init__(self) -> None:
        self.ranks = {item.rank: item for item in self.program.ranks}
        self._content: dict[Cell, Unit | None] = {}
        self._users: dict[Cell, dict[Unit, bool]] = {}
        self._written = _written(self.program)
        self._cuts = _cuts(self.program)
        self._calls = {rank: _numbered(item) for rank, item in self.ranks.items()}

    def enabled(self) -> list[Step]:
        """Every step that may happen now."""
        return [step for step in self._due() if not self.obstacle(step)]

    def do(self, step: Step) -> None:
        """Take a step. Raises ValueError where it may not happen."""
        why = self.obstacle(step)
        if why:
            raise ValueError(f"{step} cannot happen: {why}")
        rank, index, part, phase = step
        event = self.ranks[rank].events[index]
        unit = (rank, index, part)
        if phase == "start":
            self.started.add(unit)
            for number, leaf in enumerate(leaves(event)):
                self._enter((rank, index, number) if isinstance(event, Group) else unit, leaf)
        else:
            self.ended.add(unit)
            if part >= 0:
                self._leave(unit, leaves(event)[part])
            elif not isinstance(event, Group):
                self._leave(unit, event)
            if isinstance(event, Await) and not self._recorded(event, rank, index):
                text = f"{self._name(unit)} waits for nothing: {event.mark} is not recorded yet"
                self.sights.append(Sight("mark", unit, None, text))

    def _recorded(self, event: Await, rank: int, index: int) -> bool:
        earlier = self.ranks[rank].events[:index]
        return any(isinstance(e, Record) and e.mark == event.mark for e in earlier)

    def finished(self) -> bool:
        return all(
            (rank, index, -1) in self.ended
            for rank, item in self.ranks.items()
            for index in range(len(item.events))
        )

    def obstacle(self, step: Step) -> str:
        """Why a step may not happen now; empty where it may."""
        rank, index, part, phase = step
        item = self.ranks[rank]
        event = item.events[index]
        unit = (rank, index, part)
        if phase == "start":
            if unit in self.started:
                return "it has started"
            return self._turn(item, index)
        if (rank, index, -1) not in self.started:
            return "it has not started"
        if unit in self.ended:
            return "it has ended"
        if part >= 0:
            return self._met(unit, leaves(event)[part])
        return self._done(item, index, event)

    def _due(self) -> list[Step]:
        out: list[Step] = []
        for rank, item in self.ranks.items():
            for index, event in enumerate(item.events):
                whole = (rank, index, -1)
                if whole not in self.started:
                    out.append((*whole, "start"))
                    continue
                if isinstance(event, Group):
                    for part in range(len(event.parts)):
                        if (rank, index, part) not in self.ended:
                            out.append((rank, index, part, "end"))
                if whole not in self.ended:
                    out.append((*whole, "end"))
        return out

    def _passed(self, item: RankEvents, index: int) -> bool:
        """Whether a stream may go past the event."""
        unit = (item.rank, index, -1)
        return unit in (self.started if handle_of(item.events[index]) else self.ended)

    def _turn(self, item: RankEvents, index: int) -> str:
        stream = item.events[index].stream
        for earlier in range(index):
            event = item.events[earlier]
            if (event.stream == stream or isinstance(event, Sync)) and not self._passed(
                item, earlier
            ):
                return f"{show_event(event)} comes first"
        return ""

    def _done(self, item: RankEvents, index: int, event: Event) -> str:
        """Whether the event itself may end."""
        rank = item.rank
        earlier = range(index)
        match event:
            case Collective() | Transfer():
                return self._met((rank, index, -1), event)
            case Group():
                for part, leaf in enumerate(event.parts):
                    if (rank, index, part) not in self.ended:
                        return f"{show_event(leaf)} has not ended"
            case Wait():
                issued = [k for k in earlier if handle_of(item.events[k]) == event.handle]
                if not issued:
                    return f"nothing before it issues {event.handle}"
                if (rank, issued[-1], -1) not in self.ended:
                    return f"{show_event(item.events[issued[-1]])} has not ended"
            case Await():
                for k in earlier:
                    other = item.events[k]
                    if (
                        isinstance(other, Record)
                        and other.mark == event.mark
                        and (rank, k, -1) not in self.ended
                    ):
                        return f"stream {other.stream} has not come to {event.mark}"
            case Join() | Sync():
                for k in earlier:
                    other = item.events[k]
                    mine = isinstance(event, Sync) or other.stream == event.other
                    over = (
                        (rank, k, -1) in self.ended
                        if isinstance(event, Sync)
                        else self._passed(item, k)
                    )
                    if mine and not over:
                        return f"{show_event(other)} has not ended"
            case _:
                pass
        return ""

    def _met(self, unit: Unit, event: Event) -> str:
        """Whether those it exchanges values with have come."""
        if isinstance(event, Collective):
            return self._gathered(unit, event)
        assert isinstance(event, Transfer)
        if isinstance(event, Send) and (self.mode == "eager" or self.program.machine.buffered):
            return ""
        partner, word = self._partner(unit), "receive" if isinstance(event, Send) else "send"
        if partner is None:
            return f"rank {event.peer} has no such {word}"
        if (partner[0], partner[1], -1) not in self.started:
            return f"rank {event.peer} has not come to its {word}"
        return ""

    def _partner(self, unit: Unit) -> Unit | None:
        """The other side of a send or a receive."""
        (way, *ends), number = self._calls[unit[0]][unit]
        source, target = int(ends[0]), int(ends[1])
        if source == target:
            return None
        other = ("recv" if way == "send" else "send", *ends)
        peer = self._calls.get(target if way == "send" else source, {})
        return next((u for u, call in peer.items() if call == (other, number)), None)

    def left_over(self) -> list[Unit]:
        """Sends and receives that meet no other."""
        return [
            unit
            for calls in self._calls.values()
            for unit, (key, _) in calls.items()
            if key[0] != "collective" and self._partner(unit) is None
        ]

    def _gathered(self, unit: Unit, event: Collective) -> str:
        rank = unit[0]
        group = self.ranks[rank].group(event.comm)
        call = self._calls[rank][unit]
        if rank not in group:
            return f"rank {rank} is not in {event.comm}"
        for member in group:
            item = self.ranks.get(member)
            if item is None or item.group(event.comm) != group:
                return f"rank {member} does not mean the same {event.comm}"
            theirs = next((u for u, c in self._calls[member].items() if c == call), None)
            if theirs is None:
                return f"rank {member} makes no such call on {event.comm}"
            other = item.events[theirs[1]]
            assert isinstance(other, Collective)
            if (other.op, other.root) != (event.op, event.root):
                return f"rank {member} calls {other.op} instead"
            if None not in (other.size, event.size) and other.size != event.size:
                return f"rank {member} brings {other.size} instead of {event.size}"
            if self._needed(event, rank, member) and not self._joined(theirs):
                return f"rank {member} has not come to it"
        return ""

    def _needed(self, event: Collective, rank: int, member: int) -> bool:
        if self.mode != "eager" or member == rank:
            return True
        if event.op in ROOTED_OUT:
            return member == event.root
        return event.op not in ROOTED_IN or rank == event.root

    def _joined(self, unit: Unit) -> bool:
        if unit not in self.started:
            return False
        if self.mode != "queue":
            return True
        return all(
            (unit[0], k, -1) in self.ended
            for k, event in enumerate(self.ranks[unit[0]].events[: unit[1]])
            if isinstance(event, Collective)
        )

    def _cells(self, rank: int, access: Access) -> list[Cell]:
        owner = -1 if access.buffer in self.program.shared else rank
        cuts = self._cuts[owner, access.buffer]
        if access.span is None:
            return [(owner, access.buffer, piece) for piece in range(max(1, len(cuts) - 1))]
        lo, hi = access.span
        return [(owner, access.buffer, piece) for piece, cut in enumerate(cuts) if lo <= cut < hi]

    def _enter(self, unit: Unit, event: Event) -> None:
        for access, writes in accesses(event):
            for cell in self._cells(unit[0], access):
                users = self._users.setdefault(cell, {})
                for other, other_writes in users.items():
                    if other != unit and (writes or other_writes):
                        text = f"{self._name(unit)} {_verb(writes)} {cell[1]} while "
                        text += f"{self._name(other)} {_verb(other_writes)} it"
                        self.sights.append(Sight("overlap", unit, other, text))
                users[unit] = users.get(unit, False) or writes

    def _leave(self, unit: Unit, event: Event) -> None:
        for access, writes in accesses(event):
            for cell in self._cells(unit[0], access):
                if not writes:
                    self._look(unit, access, cell)
        for access, writes in accesses(event):
            for cell in self._cells(unit[0], access):
                self._users[cell].pop(unit, None)
                if writes:
                    self._write(unit, event, cell)
        if isinstance(event, Recv):
            self._open(unit, event)

    def _look(self, unit: Unit, access: Access, cell: Cell) -> None:
        """A read sees what was written last."""
        seen = self._content.get(cell)
        head = f"{self._name(unit)} reads {cell[1]}"
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
        if isinstance(writer, Alloc | Free):
            text = f"{head} after {show_event(writer)}: what is there is undefined"
            self.sights.append(Sight("undefined", unit, seen, text))
        elif access.of and (writer.label != access.of or seen[0] != unit[0]):
            text = f"{head}, written by {self._name(seen)}, not by {access.of}"
            self.sights.append(Sight("stale", unit, seen, text))

    def _write(self, unit: Unit, event: Event, cell: Cell) -> None:
        before = self._content.get(cell)
        freed = before is not None and isinstance(self.ranks[before[0]].events[before[1]], Free)
        if before is not None and freed and not isinstance(event, Alloc):
            text = f"{self._name(unit)} writes {cell[1]} after {self._name(before)}"
            self.sights.append(Sight("undefined", unit, before, text))
        self._content[cell] = unit

    def _open(self, unit: Unit, event: Recv) -> None:
        sender = self._partner(unit)
        if sender is None:
            return
        whole = self.ranks[sender[0]].events[sender[1]]
        sent = leaves(whole)[max(sender[2], 0)]
        assert isinstance(sent, Transfer)
        if sent.tag != event.tag or (
            None not in (sent.size, event.size) and sent.size != event.size
        ):
            text = f"{self._name(unit)} gets what {self._name(sender)} has sent"
            self.sights.append(Sight("message", unit, sender, text))

    def _name(self, unit: Unit) -> str:
        event = self.ranks[unit[0]].events[unit[1]]
        leaf = leaves(event)[max(unit[2], 0)]
        return f"rank {unit[0]}'s {leaf.label or show_event(leaf)}"


def replay(trace: Trace) -> Outcome:
    """Run a trace.

    Raises:
        ValueError: a step of it cannot happen where it stands.
    """
    run = Execution(trace.program, trace.mode)
    for step in trace.steps:
        run.do(step)
    blocked: list[tuple[Unit, str]] = []
    for rank, item in run.ranks.items():
        for index in range(len(item.events)):
            unit = (rank, index, -1)
            if unit in run.started and unit not in run.ended:
                why = run.obstacle((*unit, "end"))
                if why:
                    blocked.append((unit, why))
    flying = [
        (rank, index, -1)
        for rank, item in run.ranks.items()
        for index, event in enumerate(item.events)
        if handle_of(event)
        and (rank, index, -1) in run.started
        and (rank, index, -1) not in run.ended
    ]
    stuck = not run.finished() and not run.enabled()
    return Outcome(run.sights, blocked, stuck, flying, run.left_over())


def _numbered(item: RankEvents) -> dict[Unit, tuple[tuple[str, ...], int]]:
    """Each call with the place it goes to, and how many went there before."""
    count: dict[tuple[str, ...], int] = {}
    out: dict[Unit, tuple[tuple[str, ...], int]] = {}
    for index, event in enumerate(item.events):
        for part, leaf in enumerate(leaves(event)):
            if isinstance(leaf, Collective):
                key = ("collective", leaf.comm, str(item.group(leaf.comm)))
            elif isinstance(leaf, Send):
                key = ("send", str(item.rank), str(leaf.peer), leaf.channel)
            elif isinstance(leaf, Recv):
                key = ("recv", str(leaf.peer), str(item.rank), leaf.channel)
            else:
                continue
            unit = (item.rank, index, part if isinstance(event, Group) else -1)
            out[unit] = key, count.get(key, 0)
            count[key] = count.get(key, 0) + 1
    return out


def _cuts(program: TimeProgram) -> dict[tuple[int, str], list[int]]:
    """Where the spans of accesses cut each buffer into pieces; a piece begins at each cut."""
    out: dict[tuple[int, str], set[int]] = {}
    for item in program.ranks:
        for event in item.events:
            for access, _ in accesses(event):
                owner = -1 if access.buffer in program.shared else item.rank
                cuts = out.setdefault((owner, access.buffer), {0})
                if access.span:
                    cuts.update(access.span)
    return {key: sorted(cuts) for key, cuts in out.items()}


def _written(program: TimeProgram) -> set[tuple[int, str]]:
    return {
        (-1 if access.buffer in program.shared else item.rank, access.buffer)
        for item in program.ranks
        for event in item.events
        for access, writes in accesses(event)
        if writes
    }


def _verb(writes: bool) -> str:
    return "writes" if writes else "reads"
