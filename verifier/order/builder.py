"""Builds event programs in Python, and holds programs from any source to the rules of the form."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.types import NOWHERE
from shardproof.verifier.order import events as ev

_ACCESS = re.compile(
    r"(?P<buffer>[A-Za-z_][\w./*-]*)"
    r"(?:\[(?P<lo>\d+):(?P<hi>\d+)\])?"
    r"(?:\s+from\s+(?P<of>[A-Za-z_][\w./*-]*))?"
)


def access(text: str) -> ev.Access:
    """Read `g`, `g[0:4]` or `g[0:4] from F0`. Raises MalformedError."""
    match = _ACCESS.fullmatch(text.strip())
    if match is None:
        raise MalformedError("an access", expected="buffer, buffer[0:4] or b from F0", got=text)
    if match["lo"] is None:
        return ev.Access(match["buffer"], None, match["of"] or "")
    lo, hi = int(match["lo"]), int(match["hi"])
    if lo >= hi:
        raise MalformedError("an access", expected="entries [lo:hi] with lo < hi", got=text)
    return ev.Access(match["buffer"], (lo, hi), match["of"] or "")


def _all(texts: str | Iterable[str]) -> tuple[ev.Access, ...]:
    if isinstance(texts, str):
        texts = [texts]
    return tuple(access(text) for text in texts)


@dataclass
class RankBuilder:
    """Appends events to one rank. Every method takes `label`, `stream`, `when` and `source`.

    Accesses are written `g`, `g[0:4]` or `g from F0`; asynchronous events name their `handle`.
    """

    rank: int
    events: list[ev.Event] = field(default_factory=list[ev.Event])
    held: set[str] = field(default_factory=set[str])
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    def add(self, event: ev.Event) -> ev.Event:
        self.events.append(event)
        return event

    def holds(self, *buffers: str) -> None:
        """These buffers have a value from the start."""
        self.held.update(buffers)

    def compute(
        self, reads: str | Iterable[str] = (), writes: str | Iterable[str] = (), **rest: Any
    ) -> ev.Event:
        return self.add(ev.Compute(reads=_all(reads), writes=_all(writes), **rest))

    def collective(
        self,
        op: str,
        comm: str,
        reads: str | Iterable[str] = (),
        writes: str | Iterable[str] = (),
        **rest: Any,
    ) -> ev.Event:
        """`rest` may also hold `size`, `root` and `handle`."""
        return self.add(
            ev.Collective(op=op, comm=comm, reads=_all(reads), writes=_all(writes), **rest)
        )

    def send(self, peer: int, reads: str | Iterable[str] = (), **rest: Any) -> ev.Event:
        """`rest` may also hold `channel`, `tag`, `size` and `handle`."""
        return self.add(ev.Send(peer=peer, reads=_all(reads), **rest))

    def recv(self, peer: int, writes: str | Iterable[str] = (), **rest: Any) -> ev.Event:
        """`rest` may also hold `channel`, `tag`, `size` and `handle`."""
        return self.add(ev.Recv(peer=peer, writes=_all(writes), **rest))

    def group(self, *parts: ev.Transfer, **rest: Any) -> ev.Event:
        """`rest` may also hold `handle`."""
        return self.add(ev.Group(parts=parts, **rest))

    def wait(self, handle: str, **rest: Any) -> ev.Event:
        return self.add(ev.Wait(handle=handle, **rest))

    def record(self, mark: str, **rest: Any) -> ev.Event:
        return self.add(ev.Record(mark=mark, **rest))

    def wait_mark(self, mark: str, **rest: Any) -> ev.Event:
        return self.add(ev.Await(mark=mark, **rest))

    def join(self, stream: str, other: str, **rest: Any) -> ev.Event:
        """`stream` waits for all that was issued on `other`."""
        return self.add(ev.Join(stream=stream, other=other, **rest))

    def alloc(self, *buffers: str, **rest: Any) -> ev.Event:
        return self.add(ev.Alloc(writes=_all(buffers), **rest))

    def free(self, *buffers: str, **rest: Any) -> ev.Event:
        return self.add(ev.Free(writes=_all(buffers), **rest))

    def sync(self, **rest: Any) -> ev.Event:
        return self.add(ev.Sync(**rest))


class TimeBuilder:
    """Builds a `TimeProgram`.

    t = TimeBuilder("overlap")
    t.communicator("tp", (0, 1))
    for rank in (0, 1):
        r = t.rank(rank)
        r.collective("all_reduce", "tp", "g", "g", handle="h")
        r.wait("h")
    program = t.build()
    """

    def __init__(self, name: str = "events", machine: ev.Machine | None = None) -> None:
        self.name = name
        self.machine = machine or ev.Machine()
        self.shared: set[str] = set()
        self.conditions: dict[str, bool] = {}
        self._groups: dict[str, tuple[tuple[int, ...], ...]] = {}
        self._ranks: dict[int, RankBuilder] = {}

    def communicator(self, name: str, *groups: Sequence[int]) -> None:
        """Disjoint groups of ranks that go by one name; each rank means the one it is in."""
        self._groups[name] = tuple(tuple(group) for group in groups)

    def condition(self, name: str, *, local: bool = False) -> None:
        self.conditions[name] = local

    def rank(self, rank: int) -> RankBuilder:
        return self._ranks.setdefault(rank, RankBuilder(rank))

    def build(self) -> ev.TimeProgram:
        """Raises MalformedError where the program is not well formed."""
        for name, groups in self._groups.items():
            _check_groups(name, groups)
        ranks: list[ev.RankEvents] = []
        for rank in sorted(self._ranks):
            built = self._ranks[rank]
            for name, group in built.groups.items():
                _check_groups(name, (group,))
            groups = {
                name: group
                for name, all_groups in self._groups.items()
                for group in all_groups
                if rank in group
            }
            seen = tuple(sorted({**groups, **built.groups}.items()))
            ranks.append(ev.RankEvents(rank, tuple(built.events), frozenset(built.held), seen))
        program = ev.TimeProgram(
            tuple(ranks), self.name, frozenset(self.shared), self.machine, dict(self.conditions)
        )
        well_formed(program, set(self._groups))
        return program


def _check_groups(name: str, groups: tuple[tuple[int, ...], ...]) -> None:
    members = [rank for group in groups for rank in group]
    if len(set(members)) != len(members):
        twice = next(rank for rank in members if members.count(rank) > 1)
        raise MalformedError(
            f"communicator {name}", expected="each rank once", got=f"rank {twice} twice"
        )
    if not all(groups) or not groups:
        raise MalformedError(f"communicator {name}", expected="at least one rank", got="none")


def well_formed(program: ev.TimeProgram, communicators: Iterable[str] = ()) -> None:
    """Raises MalformedError for names that mean nothing or two things, with the place."""
    known = set(communicators) | {name for item in program.ranks for name, _ in item.groups}
    if not program.ranks:
        raise MalformedError("a program of events", expected="at least one rank", got="none")
    for item in program.ranks:
        if item.rank < 0:
            raise MalformedError("a rank", expected="0 or more", got=str(item.rank))
        _rank_well_formed(item, known, program.conditions)


def _rank_well_formed(item: ev.RankEvents, comms: set[str], conditions: Mapping[str, bool]) -> None:
    places: dict[str, dict[str, ev.Event]] = {"label": {}, "handle": {}, "mark": {}}

    def once(what: str, name: str, event: ev.Event) -> None:
        before = places[what].get(name)
        if before is not None and not _exclusive(before, event):
            raise located(
                event,
                f"{what} {name} of rank {item.rank}",
                "each name once; say micro-batch or step in it",
                f"also at {before.source or 'an earlier event'}",
            )
        places[what][name] = event

    for event in item.events:
        if event.label:
            once("label", event.label, event)
        if ev.handle_of(event):
            once("handle", ev.handle_of(event), event)
        if isinstance(event, ev.Record):
            once("mark", event.mark, event)
        for leaf in ev.leaves(event):
            _leaf(leaf, event, comms)
        unknown = [name for name, _ in event.when if name not in conditions]
        if unknown:
            raise located(event, f"condition {unknown[0]}", "a declared condition", "none")
    for event in item.events:
        for used, _ in ev.accesses(event):
            if used.of and used.of not in places["label"]:
                raise located(
                    event, f"{used}", f"the label of an event of rank {item.rank}", used.of
                )


def _leaf(leaf: ev.Event, event: ev.Event, comms: set[str]) -> None:
    if isinstance(leaf, ev.Collective):
        if leaf.op not in ev.COLLECTIVES:
            raise located(event, "a collective", f"one of {', '.join(ev.COLLECTIVES)}", leaf.op)
        if leaf.comm not in comms:
            raise located(event, leaf.op, "a declared communicator", leaf.comm)
        if (leaf.root is None) == (leaf.op in ev.ROOTED_IN | ev.ROOTED_OUT):
            expected = "no root" if leaf.root is not None else "its root"
            raise located(event, leaf.op, expected, f"root {leaf.root}")
    if leaf.reads and not isinstance(leaf, ev.Compute | ev.Collective | ev.Send):
        raise located(event, f"{_kind(leaf)} with reads", "it without", str(leaf.reads[0]))
    if leaf.writes and not isinstance(
        leaf, ev.Compute | ev.Collective | ev.Recv | ev.Alloc | ev.Free
    ):
        raise located(event, f"{_kind(leaf)} with writes", "it without", str(leaf.writes[0]))
    if isinstance(event, ev.Group) and (leaf.when or not isinstance(leaf, ev.Send | ev.Recv)):
        raise located(event, "part of a group", "a plain send or recv", _kind(leaf))


def _kind(event: ev.Event) -> str:
    return type(event).__name__.lower()


def _exclusive(a: ev.Event, b: ev.Event) -> bool:
    """Whether no path has both events."""
    other = dict(b.when)
    return any(name in other and other[name] != value for name, value in a.when)


def located(event: ev.Event, what: str, expected: str, got: str) -> MalformedError:
    """An error at the place of an event."""
    where = str(event.source) if event.source != NOWHERE else ""
    return MalformedError(what, where=where, expected=expected, got=got)
