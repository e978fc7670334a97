"""The events of the ranks that run a distributed program.

Every node is one event on every rank that runs it, in program order. Results have storage of their
own, or the one that `into(...)` names; a view is a copy. A read says whose write it has to see, so
storage that is used again too early is found. `async` collectives, receives and computations end
at their `wait`; an `async` send ends with the program. A `wait` on another stream than that of its
operand makes the stream wait for it. A `send` without a `recv` is received where it is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.registry import traits
from shardproof.verifier.kernel.program.types import NOWHERE, Mesh, Source
from shardproof.verifier.kernel.program.where import Where, contains, process_groups
from shardproof.verifier.kernel.rank_sets import Regions, regions
from shardproof.verifier.order import events as ev
from shardproof.verifier.order.builder import TimeBuilder
from shardproof.verifier.order.meetings import (
    Meetings,
    Messages,
    dims_of,
    enough,
    is_local,
    is_quiet,
    meeting_coordinates,
)


def from_program(program: Program, *, meetings: bool = False) -> ev.TimeProgram:
    """The events of every rank.

    Ranks along a mesh dim on which nothing depends which event a rank runs do the same; two of
    them stand for all. (Map every rank to coordinate 0 of that dim: an order, or a circle of
    waits, among all ranks becomes one among those that are left, and the reverse.) With
    `meetings`, a program that `is_quiet` is reduced to what its ranks send each other, and of
    coordinates that meet others in the same nodes the first stands for all, by the same argument.

    Raises:
        IRError: a node that some rank cannot run, an op without a meaning in time, or too many
            events.
    """
    program = inline(program)
    places = regions(program)
    for fault in places.faults():
        raise IRError(f"{program.name}: {fault.node.op} {fault.reason}  {fault.node.source}")
    quiet = meetings and is_quiet(program)
    mesh, left = enough(program, 2), dict[str, tuple[int, ...]]()
    if quiet:
        left = meeting_coordinates(program, places)
        mesh = Mesh(tuple((name, len(left[name])) for name in program.mesh.names))
    met = Meetings(mesh)
    met.within_limit(program, quiet)
    builder = TimeBuilder(program.name)
    for names in sorted({dims_of(node) for _, node in program.distinct() if traits(node.op).meets}):
        builder.communicator("+".join(names), *process_groups(mesh, names))
    message = Messages()
    received = {
        (id(inner), message(inner, node.inputs[0]))
        for inner, node in program.distinct()
        if node.op == "recv"
    }
    stored = {node.timing.buffer for _, node in program.distinct() if node.timing.buffer}
    for rank, place in enumerate(mesh.coords()):
        coords = {name: left[name][at] if left else at for name, at in place.items()}
        writer = _Rank(rank, coords, place, met, received, message, quiet)
        writer.run(program, places, stored)
        built = builder.rank(rank)
        built.events = writer.events
    return builder.build()


@dataclass
class _Rank:
    """Writes the events of one rank."""

    rank: int
    coords: Mapping[str, int]
    place: Mapping[str, int]
    met: Meetings
    received: set[tuple[int, str]]
    message: Messages
    quiet: bool
    events: list[ev.Event] = field(default_factory=list[ev.Event])
    held: dict[str, ev.Access] = field(default_factory=dict[str, ev.Access])
    """Value -> where it is, and whose write it is."""
    flying: dict[str, str] = field(default_factory=dict[str, str])
    """Label of an asynchronous call -> its handle."""
    own: dict[str, str] = field(default_factory=dict[str, str])
    """Label of an asynchronous computation -> the stream it has for itself."""
    stream: dict[str, str] = field(default_factory=dict[str, str])
    """Label -> the stream it ran on."""
    sent: list[str] = field(default_factory=list[str])
    used: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    counts: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    def run(self, program: Program, places: Regions, stored: set[str]) -> None:
        """The whole program."""
        for item in program.inputs:
            self._fresh(item.name)
            if contains(item.where, self.coords):
                self.held[item.name] = ev.Access(item.name)
                if item.name in stored:
                    given = ev.Compute(source=Source(module=f"input %{item.name}"))
                    self._write(given, item.name, item.name)
        self._nodes(program, places)
        for handle in self.sent:
            self.events.append(ev.Wait(handle=handle, source=Source(module="return")))
        reads = [self.held[o.value] for o in program.outputs if o.value in self.held]
        if reads:
            label, source = self._label("return"), Source(module="return")
            self.events.append(ev.Compute(label=label, reads=tuple(reads), source=source))

    def _nodes(self, program: Program, places: Regions) -> None:
        for node in self.met.timed(program) if self.quiet else program.nodes:
            begin = len(self.events)
            if node.body is None:
                self._node(program, node, places, places.values[node.outputs[0]])
            elif (
                not self.quiet
                and all(v in self.held for v in node.inputs)
                and self.met.is_plain(node.body)
            ):
                self._compute(node)
            else:
                self._scan(node, places)
            for index in range(begin, len(self.events)):
                if self.events[index].source == NOWHERE:
                    self.events[index] = replace(self.events[index], source=_source(node))

    def _node(self, program: Program, node: Node, places: Regions, region: Where) -> None:
        here = contains(region, self.coords)
        if traits(node.op).alias:
            if here:
                self._alias(node)
        elif node.op == "send":
            self._send(program, node, places.values[node.inputs[0]])
        elif node.op == "recv":
            if here:
                self._recv(program, node, self.message(program, node.inputs[0]))
        elif node.op == "ring_shift":
            if here:
                self._ring(program, node)
        elif traits(node.op).meets:
            if contains(node.where, self.coords) and (
                here or contains(places.values[node.inputs[0]], self.coords)
            ):
                self._call(program, node, here)
        elif lookup(node.op).kind == "movement" or (
            lookup(node.op).kind == "collective" and not is_local(node)
        ):
            raise IRError(f"{program.name}: what {node.op} waits for is not known")
        elif here:
            self._compute(node)

    def _compute(self, node: Node) -> None:
        stream = node.timing.stream or ev.MAIN
        label = self._label(node.outputs[0])
        reads = self._reads(node)
        if node.timing.asynchronous:
            own = self.own[label] = f"async.{label}"
            self.events.append(ev.Join(stream=own, other=stream))
            stream = own
        event = ev.Compute(label=label, stream=stream, reads=reads, writes=self._targets(node))
        self._done(node, event, stream)

    def _call(self, program: Program, node: Node, here: bool) -> None:
        attrs = lookup(node.op).with_defaults(node.attrs)
        names = dims_of(node)
        stream, label = node.timing.stream or ev.MAIN, self._label(node.outputs[0])
        comm = "+".join(names)
        group = next(g for g in process_groups(self.met.mesh, names) if self.rank in g)
        rooted = "index" in attrs
        handle = self._handle(node, label)
        held = node.inputs[0] in self.held and not self.quiet
        event = ev.Collective(
            op=traits(node.op).meets,
            comm=comm,
            label=label,
            stream=stream,
            size=program[node.inputs[0]].nbytes,
            root=group[int(attrs["index"])] if rooted else None,
            handle=handle,
            reads=self._reads(node) if held else (),
            writes=self._targets(node) if here else (),
        )
        if here:
            self._done(node, event, stream)
        else:
            self.events.append(event)
            self.sent += [handle] if handle else []

    def _send(self, program: Program, node: Node, held: Where) -> None:
        name, value = dims_of(node)[0], node.outputs[0]
        source, target = node.attrs["src"], node.attrs["dst"]
        mine = self.coords[name]
        runs = contains(held, {**self.coords, name: int(str(source))})
        if not runs or (
            node.where and not contains(node.where, {**self.coords, name: int(str(source))})
        ):
            return
        if self.met.mesh[name] == 1:
            self.held[value] = self.held.get(node.inputs[0], ev.Access(value))
        elif mine == source:
            label = self._label(f"{value}.send")
            handle = self._handle(node, label)
            self.sent += [handle] if handle else []
            self.events.append(
                ev.Send(
                    peer=self._peer(name, int(str(target))),
                    tag=value,
                    label=label,
                    stream=node.timing.stream or ev.MAIN,
                    size=program[value].nbytes,
                    handle=handle,
                    reads=self._reads(node),
                )
            )
        elif mine == target and (id(program), value) not in self.received:
            self._recv(program, node, value)

    def _recv(self, program: Program, node: Node, message: str) -> None:
        name, source = dims_of(node)[0], int(str(node.attrs["src"]))
        if self.met.mesh[name] == 1:
            self.held |= {v: self.held[message] for v in node.outputs if message in self.held}
            return
        stream, label = node.timing.stream or ev.MAIN, self._label(node.outputs[0])
        receives = node.op == "recv"
        handle = self._handle(node, label) if receives else ""
        event = ev.Recv(
            peer=self._peer(name, source),
            tag=message,
            label=label,
            stream=stream,
            size=program[message].nbytes,
            handle=handle,
            writes=self._targets(node) if receives else (ev.Access(self._fresh(message)),),
        )
        self._done(node, event, stream)

    def _ring(self, program: Program, node: Node) -> None:
        attrs = lookup(node.op).with_defaults(node.attrs)
        name, value = dims_of(node)[0], node.outputs[0]
        n, shift = self.met.mesh[name], int(str(attrs["shift"]))
        if shift % n == 0:
            self._compute(node)
            return
        mine = self.coords[name]
        label, size = self._label(value), program[value].nbytes
        handle = self._handle(node, label)
        to, source = self._peer(name, (mine + shift) % n), self._peer(name, (mine - shift) % n)
        parts: tuple[ev.Transfer, ...] = (
            ev.Send(peer=to, tag=value, size=size, reads=self._reads(node)),
            ev.Recv(peer=source, tag=value, size=size, writes=self._targets(node)),
        )
        stream = node.timing.stream or ev.MAIN
        event = ev.Group(parts=parts, label=label, stream=stream, handle=handle)
        self._done(node, event, stream)

    def _alias(self, node: Node) -> None:
        """`wait`, and what is its operand under another name."""
        value = next((v for v in node.inputs if v in self.held), None)
        if value is None:
            return
        access = self.held[value]
        self.held[node.outputs[0]] = access
        if node.op != "wait":
            return
        stream, label = node.timing.stream or ev.MAIN, access.of
        ran = self.own.get(label) or self.stream.get(label, ev.MAIN)
        if label in self.flying:
            self.events.append(ev.Wait(stream=stream, handle=self.flying[label]))
        elif ran != stream:
            self.events.append(ev.Join(stream=stream, other=ran))

    def _scan(self, node: Node, places: Regions) -> None:
        """Step after step; carries go on, slices and results are read and written as a whole."""
        body = node.block
        attrs = lookup(node.op).with_defaults(node.attrs)
        carries, _, _ = scan_parts(attrs, len(node.inputs))
        inside = places.inside(node)
        mine = [contains(inside.values[item.name], self.coords) for item in body.inputs]
        pairs = zip(node.inputs, mine, strict=True)
        given = [self.held.get(v) if here else None for v, here in pairs]
        outer = self.held
        state = given[carries]
        rest = given[carries.stop :]
        made: list[list[ev.Access | None]] = []
        for _ in range(node.number("length")):
            passed = zip(body.inputs, [*state, *rest], strict=True)
            self.held = {item.name: access for item, access in passed if access is not None}
            self._nodes(body, inside)
            results = [self.held.get(o.value) for o in body.outputs]
            state = results[carries]
            made.append(results[carries.stop :])
        self.held = outer
        for value, access, here in zip(node.outputs, state, mine, strict=False):
            if access is not None and here:
                self.held[value] = access
        for index, value in enumerate(node.outputs[carries.stop :]):
            steps = [step[index] for step in made]
            reads = tuple(dict.fromkeys(a for a in steps if a is not None))
            if not reads:
                continue
            label = self._label(value)
            self._write(ev.Compute(reads=reads), value, self._fresh(value), label)

    def _reads(self, node: Node) -> tuple[ev.Access, ...]:
        if self.quiet:
            return ()
        for value in node.inputs:
            if value not in self.held:
                raise IRError(
                    f"{node.op} reads %{value}, which is on its way; receive it first  "
                    f"{_source(node)}"
                )
        return tuple(dict.fromkeys(self.held[v] for v in node.inputs))

    def _targets(self, node: Node) -> tuple[ev.Access, ...]:
        first, *others = node.outputs
        buffer = node.timing.buffer or self._fresh(first)
        return (ev.Access(buffer), *(ev.Access(self._fresh(name)) for name in others))

    def _done(self, node: Node, event: ev.Event, stream: str) -> None:
        """Append an event and note where its results are."""
        self.events.append(event)
        self.stream[event.label] = stream
        writes = [a for leaf in ev.leaves(event) for a in leaf.writes]
        for value, access in zip(node.outputs, writes, strict=True):
            self.held[value] = replace(access, of=event.label)

    def _write(self, event: ev.Compute, value: str, buffer: str, label: str = "") -> None:
        event = replace(event, label=label or self._label(value), writes=(ev.Access(buffer),))
        self.events.append(event)
        self.held[value] = ev.Access(buffer, None, event.label)

    def _peer(self, name: str, coordinate: int) -> int:
        place = {**self.place, name: coordinate}
        rank = 0
        for dim, size in self.met.mesh.dims:
            rank = rank * size + place[dim]
        return rank

    def _handle(self, node: Node, label: str) -> str:
        """That of an asynchronous call; empty where it is none."""
        if not node.timing.asynchronous:
            return ""
        self.flying[label] = f"{label}.work"
        return self.flying[label]

    def _label(self, name: str) -> str:
        """The name itself the first time, then with a number behind it."""
        return self._once("label", name)

    def _fresh(self, name: str) -> str:
        return self._once("buffer", name)

    def _once(self, what: str, name: str) -> str:
        number = self.counts.get((what, name), 0)
        out = f"{name}.{number}" if number else name
        while (what, out) in self.used:
            number += 1
            out = f"{name}.{number}"
        self.used.add((what, out))
        self.counts[what, name] = number
        return out


def _source(node: Node) -> Source:
    """Where a node comes from, or at least what it is."""
    known = node.source != NOWHERE
    return node.source if known else Source(module=f"%{node.outputs[0]} = {node.op}")
