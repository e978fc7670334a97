"""`verify_temporal`: the order of a class program, judged as events of its ranks.

A tensor name is a buffer, and writing it again is a new value in the same buffer; the result of a
`Wait` is the buffer that was waited for. Each read must see the last value written before it in
the program. An asynchronous op starts at its place and ends when its handle is waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from shardproof.compat.mesh import DeviceMesh
from shardproof.compat.program import IROp, Program
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.types import NOWHERE, Source
from shardproof.verifier.kernel.program.where import process_groups
from shardproof.verifier.order.builder import TimeBuilder
from shardproof.verifier.order.events import (
    MAIN,
    Access,
    Collective,
    Compute,
    Event,
    Join,
    Recv,
    Send,
    TimeProgram,
    Wait,
    accesses,
)
from shardproof.verifier.order.verify import verify_time
from shardproof.verifier.order.violation import Violation

CALLS = {
    "AllReduce": "all_reduce",
    "AllReduceAsync": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AllToAll": "all_to_all",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "Gather": "gather",
    "Scatter": "scatter",
    "RingRotate": "all_to_all",
    "RingAttention": "all_gather",
    "ZeROGatherParam": "all_gather",
    "ZeROScatterGrad": "reduce_scatter",
    "MoEDispatch": "all_to_all",
    "MoECombine": "all_to_all",
}
"""Ops that communicate -> the call that is made."""


class RaceType(Enum):
    """What can go wrong in an order."""

    DATA_RACE = "data_race"
    MISSING_WAIT = "missing_wait"
    BUFFER_ALIASING = "buffer_aliasing"
    DEPENDENCY_VIOLATION = "dependency_violation"
    CONCURRENT_COLLECTIVES = "concurrent_collectives"
    ORPHANED_HANDLE = "orphaned_handle"
    DEADLOCK = "deadlock"


KINDS = {
    "data_race": RaceType.DATA_RACE,
    "in_flight_overwrite": RaceType.DATA_RACE,
    "use_after_free": RaceType.DATA_RACE,
    "missing_wait": RaceType.MISSING_WAIT,
    "buffer_aliasing": RaceType.BUFFER_ALIASING,
    "orphaned_handle": RaceType.ORPHANED_HANDLE,
    "consistent_order": RaceType.CONCURRENT_COLLECTIVES,
    "launch_order": RaceType.CONCURRENT_COLLECTIVES,
    "deadlock": RaceType.DEADLOCK,
}
"""Check of `verifier.order` -> what it is called here; the others are dependency violations."""


@dataclass(frozen=True)
class RaceReport:
    """One way in which an order goes wrong."""

    race_type: RaceType
    tensor: str
    message: str
    source: Source = NOWHERE
    violation: Violation | None = field(default=None, repr=False)

    def __str__(self) -> str:
        at = f"  ({self.source})" if str(self.source) else ""
        return f"{self.race_type.name} on tensor '{self.tensor}': {self.message}{at}"


@dataclass
class TemporalVerifyResult:
    """The answer about one program."""

    program_name: str
    num_ops: int
    num_async_ops: int
    num_hb_edges: int
    """Pairs of neighbours that the order of a rank or a wait puts one after the other."""
    reports: list[RaceReport]

    @property
    def is_safe(self) -> bool:
        return not self.reports

    def count(self, kind: RaceType) -> int:
        return Counter(r.race_type for r in self.reports)[kind]

    @property
    def num_races(self) -> int:
        return self.count(RaceType.DATA_RACE)

    @property
    def num_missing_waits(self) -> int:
        return self.count(RaceType.MISSING_WAIT)

    @property
    def num_buffer_aliases(self) -> int:
        return self.count(RaceType.BUFFER_ALIASING)

    @property
    def num_dep_violations(self) -> int:
        return self.count(RaceType.DEPENDENCY_VIOLATION)

    @property
    def num_concurrent_collectives(self) -> int:
        return self.count(RaceType.CONCURRENT_COLLECTIVES)

    @property
    def num_orphaned_handles(self) -> int:
        return self.count(RaceType.ORPHANED_HANDLE)

    def summary(self) -> str:
        """One line, then one for each report."""
        head = f"{self.program_name}: " + (
            "safe in time" if self.is_safe else f"{len(self.reports)} found"
        )
        return "\n".join([head, *(f"  {r}" for r in self.reports)])


def verify_temporal(
    program: Program,
    mesh: DeviceMesh | None = None,
    holders: Mapping[str, Sequence[int]] | None = None,
) -> TemporalVerifyResult:
    """Everything that can go wrong in the order of a program.

    Args:
        program: what the devices run.
        mesh: the devices and their groups; by default as many as sends and roots name, in one.
        holders: the devices that hold an input, where not all do.
    """
    ops = program.flat()
    asynchronous = sum(op.is_async() for op in ops)
    built = _Events(program, mesh, holders or {})
    try:
        events = built.run()
        violations = verify_time(events)
    except MalformedError as error:
        report = RaceReport(RaceType.DEPENDENCY_VIOLATION, "", str(error))
        return TemporalVerifyResult(program.name, len(ops), asynchronous, 0, [report])
    edges = sum(max(len(r.events) - 1, 0) for r in events.ranks)
    edges += sum(isinstance(e, Wait) for r in events.ranks for e in r.events)
    seen: dict[tuple[RaceType, str, str], RaceReport] = {}
    for violation in violations:
        report = _report(violation)
        seen.setdefault((report.race_type, report.tensor, str(report.source)), report)
    return TemporalVerifyResult(
        program.name, len(ops), asynchronous, edges, [*built.reports, *seen.values()]
    )


def _report(violation: Violation) -> RaceReport:
    kind = KINDS.get(violation.check, RaceType.DEPENDENCY_VIOLATION)
    touched = [[a.buffer for a, _ in accesses(p.event)] for p in violation.events]
    shared = [b for b in reversed(touched[-1] if touched else []) if all(b in t for t in touched)]
    first = shared or [b for t in touched for b in reversed(t)]
    source = violation.events[-1].source if violation.events else NOWHERE
    return RaceReport(kind, first[0] if first else "", violation.message, source, violation)


class _Events:
    """The events of each rank of a class program."""

    def __init__(
        self,
        program: Program,
        mesh: DeviceMesh | None,
        holders: Mapping[str, Sequence[int]],
    ) -> None:
        self.program, self.mesh = program, mesh
        self.builder = TimeBuilder(program.name or "program")
        ends = {d for op in program.flat() if op.is_p2p() for d in _ends(op)}
        ends |= {getattr(op, "root", 0) for op in program.flat()}
        self.ranks = mesh.ids if mesh is not None else tuple(range(max([1, *ends]) + 1))
        self.holders = {n: tuple(holders.get(n, self.ranks)) for n in program.inputs}
        self.received: set[str] = set()
        self.buffer: dict[str, str] = {}
        self.writer: dict[tuple[int, str], str] = {}
        self.handles: dict[str, str] = {}
        self.issued: dict[str, tuple[int, ...]] = {}
        self.count = 0
        self.reports: list[RaceReport] = []

    def run(self) -> TimeProgram:
        comms = {getattr(op, "mesh_dim", None) or "world" for op in self.program.flat()}
        for name in sorted(map(str, comms)):
            self.builder.communicator(name, *self.groups(name))
        for rank in self.ranks:
            held = [n for n in self.program.inputs if rank in self.holders[n]]
            self.builder.rank(rank).holds(*held)
        for op in self.program.ops:
            compute: list[IROp] | None = getattr(op, "compute_ops", None)
            if compute is None:
                self.op(op, MAIN)
                continue
            self.join(("compute", MAIN), ("comm", MAIN))
            for inner in getattr(op, "comm_ops"):  # noqa: B009
                self.op(inner, "comm")
            for inner in compute:
                self.op(inner, "compute")
            self.join((MAIN, "compute"), (MAIN, "comm"))
        return self.builder.build()

    def groups(self, name: str) -> list[tuple[int, ...]]:
        """The groups of a communicator."""
        if self.mesh is None or name not in self.mesh.dim_names:
            return [self.ranks]
        found = process_groups(self.mesh.core, (name,))
        return [tuple(self.mesh.ids[r] for r in group) for group in found]

    def join(self, *pairs: tuple[str, str]) -> None:
        for rank in self.ranks:
            for stream, other in pairs:
                self.builder.rank(rank).add(Join(stream=stream, other=other))

    def op(self, op: IROp, stream: str) -> None:
        self.count += 1
        kind = type(op).__name__
        if kind in ("Wait", "WaitAll"):
            self.wait(op, stream)
            return
        runs = self.where(op)
        handle = getattr(op, "handle", None) or ""
        if handle:
            self.issued[handle] = runs
            self.handles[handle] = handle = f"{handle}.{self.count}"
        for rank in runs:
            self.builder.rank(rank).add(self.event(op, kind, rank, stream, handle))
        self.written(op, kind, runs)

    def where(self, op: IROp) -> tuple[int, ...]:
        if op.is_p2p():
            src, dst = _ends(op)
            return (src,) if getattr(op, "core", "") == "send" else (dst,)
        held = [set(self.holders.get(n, self.ranks)) for n in op.input_names]
        return tuple(sorted(set(self.ranks).intersection(*held)))

    def event(self, op: IROp, kind: str, rank: int, stream: str, handle: str) -> Event:
        label = f"op{self.count}"
        reads = tuple(self.read(rank, n) for n in op.input_names)
        writes = tuple(Access(n) for n in op.output_names)
        common: dict[str, Any] = {"label": label, "stream": stream, "source": op.source}
        if op.is_p2p():
            src, dst = _ends(op)
            tag = str(getattr(op, "microbatch_id", None) or "")
            if getattr(op, "core", "") == "send":
                return Send(peer=dst, reads=reads, tag=tag, handle=handle, **common)
            return Recv(peer=src, writes=writes, tag=tag, handle=handle, **common)
        if op.is_communication() and kind in CALLS:
            name = CALLS[kind]
            rooted = name in ("broadcast", "reduce", "gather", "scatter")
            root = getattr(op, "root", 0) if rooted else None
            comm = getattr(op, "mesh_dim", None) or "world"
            return Collective(op=name, comm=comm, root=root, handle=handle, reads=reads,
                              writes=writes, **common)  # fmt: skip
        return Compute(reads=reads, writes=writes, **common)

    def read(self, rank: int, name: str) -> Access:
        buffer = self.buffer.get(name, name)
        return Access(buffer, None, self.writer.get((rank, name), ""))

    def written(self, op: IROp, kind: str, runs: Sequence[int]) -> None:
        message = getattr(op, "core", "") == "send"
        for name in () if message else op.output_names:
            self.buffer[name] = name
            before = self.holders.get(name, ()) if name in self.received else ()
            apart = getattr(op, "core", "") == "recv" and not set(before) & set(runs)
            self.holders[name] = (*before, *runs) if apart else tuple(runs)
            (self.received.add if getattr(op, "core", "") == "recv" else self.received.discard)(
                name
            )
            for rank in runs:
                self.writer[rank, name] = f"op{self.count}"

    def wait(self, op: IROp, stream: str) -> None:
        handles: list[str] = getattr(op, "handles", None) or [getattr(op, "handle")]  # noqa: B009
        for handle in handles:
            if handle not in self.handles:
                text = f"waits for {handle}, which nothing started"
                self.reports.append(
                    RaceReport(RaceType.DEPENDENCY_VIOLATION, op.input_names[0], text, op.source)
                )
                continue
            for rank in self.issued[handle]:
                event = Wait(handle=self.handles[handle], stream=stream, source=op.source)
                self.builder.rank(rank).add(event)
        for name, old in zip(op.output_names, op.input_names, strict=True):
            self.buffer[name] = self.buffer.get(old, old)
            self.holders[name] = self.holders.get(old, self.ranks)
            for rank in self.ranks:
                if (rank, old) in self.writer:
                    self.writer[rank, name] = self.writer[rank, old]


def _ends(op: IROp) -> tuple[int, int]:
    src, dst = (getattr(op, k) for k in ("src", "dst"))
    return src, dst
