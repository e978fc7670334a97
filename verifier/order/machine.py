"""A tiny machine that runs events step by step, and sees what goes wrong.

It shares nothing with the graph and the matching: it keeps streams, counters of calls and the
contents of buffers, and asks of each step whether it may happen now. A trace that it accepts is an
execution; what it sees on the way is what the trace shows.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field

from shardproof.verifier.order import events as ev
from shardproof.verifier.order.matching import Step
from shardproof.verifier.order.memory import Memory, Sight, Unit
from shardproof.verifier.order.printing import show_event
from shardproof.verifier.order.violation import Trace


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

    program: ev.TimeProgram
    mode: str = "waits"
    started: set[Unit] = field(default_factory=set[Unit])
    ended: set[Unit] = field(default_factory=set[Unit])

    def __post_init__(self) -> None:
        self.ranks = {item.rank: item for item in self.program.ranks}
        self.memory = Memory(self.program)
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
            for number, leaf in enumerate(ev.leaves(event)):
                self.memory.enter(
                    (rank, index, number) if isinstance(event, ev.Group) else unit, leaf
                )
        else:
            self.ended.add(unit)
            if part >= 0:
                self._left(unit, ev.leaves(event)[part])
            elif not isinstance(event, ev.Group):
                self._left(unit, event)
            if isinstance(event, ev.Await) and not self._recorded(event, rank, index):
                text = f"{self.memory.name(unit)} waits for nothing: {event.mark} is not recorded"
                self.memory.sights.append(Sight("mark", unit, None, text))

    def _recorded(self, event: ev.Await, rank: int, index: int) -> bool:
        earlier = self.ranks[rank].events[:index]
        return any(isinstance(e, ev.Record) and e.mark == event.mark for e in earlier)

    @property
    def sights(self) -> list[Sight]:
        return self.memory.sights

    def copy(self) -> Execution:
        """The same state, to go on from in another way."""
        other = copy(self)
        other.started, other.ended = set(self.started), set(self.ended)
        other.memory = self.memory.copy()
        return other

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
            return self._met(unit, ev.leaves(event)[part])
        return self._done(item, index, event)

    def _due(self) -> list[Step]:
        out: list[Step] = []
        for rank, item in self.ranks.items():
            for index, event in enumerate(item.events):
                whole = (rank, index, -1)
                if whole not in self.started:
                    out.append((*whole, "start"))
                    continue
                if isinstance(event, ev.Group):
                    for part in range(len(event.parts)):
                        if (rank, index, part) not in self.ended:
                            out.append((rank, index, part, "end"))
                if whole not in self.ended:
                    out.append((*whole, "end"))
        return out

    def _passed(self, item: ev.RankEvents, index: int) -> bool:
        """Whether a stream may go past the event."""
        unit = (item.rank, index, -1)
        return unit in (self.started if ev.handle_of(item.events[index]) else self.ended)

    def _turn(self, item: ev.RankEvents, index: int) -> str:
        stream = item.events[index].stream
        for earlier in range(index):
            event = item.events[earlier]
            if (event.stream == stream or isinstance(event, ev.Sync)) and not self._passed(
                item, earlier
            ):
                return f"{show_event(event)} comes first"
        return ""

    def _done(self, item: ev.RankEvents, index: int, event: ev.Event) -> str:
        """Whether the event itself may end."""
        rank = item.rank
        earlier = range(index)
        match event:
            case ev.Collective() | ev.Transfer():
                return self._met((rank, index, -1), event)
            case ev.Group():
                for part, leaf in enumerate(event.parts):
                    if (rank, index, part) not in self.ended:
                        return f"{show_event(leaf)} has not ended"
            case ev.Wait():
                issued = [k for k in earlier if ev.handle_of(item.events[k]) == event.handle]
                if not issued:
                    return f"nothing before it issues {event.handle}"
                if (rank, issued[-1], -1) not in self.ended:
                    return f"{show_event(item.events[issued[-1]])} has not ended"
            case ev.Await():
                for k in earlier:
                    other = item.events[k]
                    if (
                        isinstance(other, ev.Record)
                        and other.mark == event.mark
                        and (rank, k, -1) not in self.ended
                    ):
                        return f"stream {other.stream} has not come to {event.mark}"
            case ev.Join() | ev.Sync():
                for k in earlier:
                    other = item.events[k]
                    mine = isinstance(event, ev.Sync) or other.stream == event.other
                    over = (
                        (rank, k, -1) in self.ended
                        if isinstance(event, ev.Sync)
                        else self._passed(item, k)
                    )
                    if mine and not over:
                        return f"{show_event(other)} has not ended"
            case _:
                pass
        return ""

    def _met(self, unit: Unit, event: ev.Event) -> str:
        """Whether those it exchanges values with have come."""
        if isinstance(event, ev.Collective):
            return self._gathered(unit, event)
        assert isinstance(event, ev.Transfer)
        if isinstance(event, ev.Send) and (self.mode == "eager" or self.program.machine.buffered):
            return ""
        partner, word = self._partner(unit), "receive" if isinstance(event, ev.Send) else "send"
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

    def _gathered(self, unit: Unit, event: ev.Collective) -> str:
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
            assert isinstance(other, ev.Collective)
            if (other.op, other.root) != (event.op, event.root):
                return f"rank {member} calls {other.op} instead"
            if None not in (other.size, event.size) and other.size != event.size:
                return f"rank {member} brings {other.size} instead of {event.size}"
            if self._needed(event, rank, member) and not self._joined(theirs):
                return f"rank {member} has not come to it"
        return ""

    def _needed(self, event: ev.Collective, rank: int, member: int) -> bool:
        if self.mode != "eager" or member == rank:
            return True
        if event.op in ev.ROOTED_OUT:
            return member == event.root
        return event.op not in ev.ROOTED_IN or rank == event.root

    def _joined(self, unit: Unit) -> bool:
        if unit not in self.started:
            return False
        if self.mode != "queue":
            return True
        return all(
            (unit[0], k, -1) in self.ended
            for k, event in enumerate(self.ranks[unit[0]].events[: unit[1]])
            if isinstance(event, ev.Collective)
        )

    def _left(self, unit: Unit, event: ev.Event) -> None:
        self.memory.leave(unit, event)
        if isinstance(event, ev.Recv):
            self._open(unit, event)

    def _open(self, unit: Unit, event: ev.Recv) -> None:
        sender = self._partner(unit)
        if sender is None:
            return
        whole = self.ranks[sender[0]].events[sender[1]]
        sent = ev.leaves(whole)[max(sender[2], 0)]
        assert isinstance(sent, ev.Transfer)
        if sent.tag != event.tag or (
            None not in (sent.size, event.size) and sent.size != event.size
        ):
            text = f"{self.memory.name(unit)} gets what {self.memory.name(sender)} has sent"
            self.memory.sights.append(Sight("message", unit, sender, text))


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
        if ev.handle_of(event)
        and (rank, index, -1) in run.started
        and (rank, index, -1) not in run.ended
    ]
    stuck = not run.finished() and not run.enabled()
    return Outcome(run.memory.sights, blocked, stuck, flying, run.left_over())


def _numbered(item: ev.RankEvents) -> dict[Unit, tuple[tuple[str, ...], int]]:
    """Each call with the place it goes to, and how many went there before."""
    count: dict[tuple[str, ...], int] = {}
    out: dict[Unit, tuple[tuple[str, ...], int]] = {}
    for index, event in enumerate(item.events):
        for part, leaf in enumerate(ev.leaves(event)):
            if isinstance(leaf, ev.Collective):
                key = ("collective", leaf.comm, str(item.group(leaf.comm)))
            elif isinstance(leaf, ev.Send):
                key = ("send", str(item.rank), str(leaf.peer), leaf.channel)
            elif isinstance(leaf, ev.Recv):
                key = ("recv", str(leaf.peer), str(item.rank), leaf.channel)
            else:
                continue
            unit = (item.rank, index, part if isinstance(event, ev.Group) else -1)
            out[unit] = key, count.get(key, 0)
            count[key] = count.get(key, 0) + 1
    return out
