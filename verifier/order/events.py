"""What every rank does, event by event: the language in which orders are judged. Data only.

A rank issues its events in one order. Each event runs on a stream; events of one stream run one
after another, events of two streams in any order unless something orders them. An event with a
handle is asynchronous: it begins no earlier than its place in its stream and ends at any time
before a `Wait` for the handle ends. Buffers belong to a rank unless the program shares them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shardproof.verifier.kernel.program.types import NOWHERE, Source

MAIN = "main"
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "barrier",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
)
ROOTED_OUT = frozenset({"broadcast", "scatter"})
"""The others wait for the root."""
ROOTED_IN = frozenset({"reduce", "gather"})
"""The root waits for the others."""


@dataclass(frozen=True, slots=True)
class Access:
    """A buffer, or the entries `[lo, hi)` of it, that an event reads or writes.

    A buffer has no entries behind the last one that a span names.
    """

    buffer: str
    span: tuple[int, int] | None = None
    of: str = ""
    """For a read: the label of the event on this rank whose write it has to see."""

    def __str__(self) -> str:
        span = f"[{self.span[0]}:{self.span[1]}]" if self.span else ""
        return f"{self.buffer}{span}{f' from {self.of}' if self.of else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What all events have."""

    label: str = ""
    """A name on its rank; at most one event has it."""
    stream: str = MAIN
    when: tuple[tuple[str, bool], ...] = ()
    """The event happens where these conditions have these values."""
    source: Source = NOWHERE
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(Event):
    """Reads and writes buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective(Event):
    """A collective call on a communicator."""

    op: str
    comm: str
    size: int | None = None
    """Operand size; None where nothing is said."""
    root: int | None = None
    handle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Event):
    """A send or a receive. Those of one (source, destination, channel) match in issue order."""

    peer: int
    channel: str = ""
    tag: str = ""
    """What is carried, a micro-batch for instance. Both sides must say the same."""
    size: int | None = None
    handle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Transfer):
    """Reads its buffer until the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recv(Transfer):
    """Writes its buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Event):
    """Sends and receives posted at once; it ends when all of them have."""

    parts: tuple[Transfer, ...]
    handle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Event):
    """Its stream goes on once the work of the handle has ended."""

    handle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Event):
    """Marks a place in its stream."""

    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Await(Event):
    """Its stream goes on once the stream of the mark has come to it."""

    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Event):
    """Its stream goes on once `other` has done all that was issued on it so far; of asynchronous
    events that is the beginning alone."""

    other: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alloc(Event):
    """The buffers it writes have undefined content afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Free(Event):
    """The buffers it writes may be given to somebody else afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(Event):
    """The rank goes on, on every stream, once all that it issued has ended."""


_KINDS = (Compute, Send, Recv, Group, Wait, Record, Await, Join, Alloc, Free, Sync)
VERBS: Mapping[str, type[Event]] = {kind.__name__.lower(): kind for kind in _KINDS}
"""How events are written, collectives apart: those are written by their op."""
NAMED: Mapping[type[Event], tuple[str, str]] = {
    Wait: ("handle", "a handle"),
    Record: ("mark", "a mark"),
    Await: ("mark", "a mark"),
    Join: ("other", "a stream"),
}
"""Events that say one name: in which field it is, and what it names."""


@dataclass(frozen=True, slots=True)
class RankEvents:
    """The events of one rank in issue order."""

    rank: int
    events: tuple[Event, ...]
    holds: frozenset[str] = frozenset()
    """Buffers that have a value from the start though the rank writes them."""
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """(communicator, its ranks in order) as this rank sees them."""

    def group(self, comm: str) -> tuple[int, ...]:
        return dict(self.groups).get(comm, ())


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine promises beyond the order of streams."""

    concurrent: bool = False
    """Collectives of one rank on several communicators run side by side, in any order."""
    buffered: bool = False
    """A send ends without its receive."""


@dataclass(frozen=True, slots=True)
class TimeProgram:
    """The events of every rank."""

    ranks: tuple[RankEvents, ...]
    """In rank order."""
    name: str = "events"
    shared: frozenset[str] = frozenset()
    """Buffers that all ranks see."""
    machine: Machine = Machine()
    conditions: dict[str, bool] = field(default_factory=dict[str, bool])
    """Condition -> whether each rank decides it for itself."""

    def of(self, rank: int) -> RankEvents | None:
        for item in self.ranks:
            if item.rank == rank:
                return item
        return None

    @property
    def size(self) -> int:
        """Number of events of all ranks."""
        return sum(len(item.events) for item in self.ranks)


def handle_of(event: Event) -> str:
    """The handle that an asynchronous event issues; empty where it is synchronous."""
    return event.handle if isinstance(event, Collective | Transfer | Group) else ""


def leaves(event: Event) -> tuple[Event, ...]:
    """The parts of a group; of any other event itself."""
    return event.parts if isinstance(event, Group) else (event,)


def accesses(event: Event) -> Iterator[tuple[Access, bool]]:
    """(access, whether it writes), parts of groups included."""
    for leaf in leaves(event):
        for access in leaf.reads:
            yield access, False
        for access in leaf.writes:
            yield access, True
