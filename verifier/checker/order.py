"""Checks what a certificate says of the order in time: no rank waits for ever, no read is early.

The events of a program, the edges between their steps and the pairs of accesses that conflict are
worked out anew, by the definitions that the prover uses too (`verifier/order`: `from_program`,
`matching`, `graph`, `pieces`). The certificate adds numbers that rise along every edge, so nothing
waits for itself, and a path for every pair that is not ordered by its stream. Nothing is searched:
one look at each edge, at each step of a path and at each access. What a read sees, and whether
handles are waited for, is judged here by rules of its own.
"""

from collections.abc import Iterator
from itertools import accumulate, islice

from shardproof.verifier.checker.certificate import Prepared
from shardproof.verifier.checker.claims import NotShownError, need
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.order.events import (
    Alloc,
    Await,
    Event,
    Free,
    RankEvents,
    Record,
    Sync,
    TimeProgram,
    Wait,
    handle_of,
    leaves,
)
from shardproof.verifier.order.graph import Graph, build
from shardproof.verifier.order.matching import Unit, match
from shardproof.verifier.order.paths import paths
from shardproof.verifier.order.pieces import Piece, neighbours, pieces
from shardproof.verifier.order.printing import show_event


def in_time(at: Cursor, given: Prepared) -> None:
    """Whether every run of the distributed program is in order, as the certificate says.

    Raises:
        NotShownError: it does not follow.
        MalformedError: the certificate has another form.
    """
    try:
        events = given.events
    except IRError as error:
        raise NotShownError(f"the order of its events cannot be judged: {error}") from None
    ordered(at, events)


def ordered(at: Cursor, program: TimeProgram) -> None:
    """The same of a program of events, for every way in which its conditions turn out."""
    given = iter(at.items())
    for said, chosen in paths(program):
        way = next(given, None)
        if way is None:
            raise NotShownError(f"nothing is said of the order in time {' '.join(said)}".strip())
        way.only("numbers", "paths")
        for item in chosen.ranks:
            _handles(item)
        _Run(chosen, way["numbers"]).check(unpacked(way["paths"]))
    need(next(given, None) is None, "more runs than the program has")


def unpacked(at: Cursor) -> Iterator[int]:
    """The integers of a list in which `[back, count]` says those `back` places before again."""
    out: list[int] = []
    for item in at.items():
        if not isinstance(item.value, list):
            out.append(item.integer())
            yield out[-1]
            continue
        pair = item.items()
        if len(pair) != 2 or not 0 < pair[0].integer() <= len(out):
            raise item.fail("no such integers before it", "[back, count]")
        for _ in range(pair[1].integer()):
            out.append(out[-pair[0].integer()])
            yield out[-1]


def _handles(item: RankEvents) -> None:
    """What is waited for was issued, and what was issued is waited for."""
    issued: set[str] = set()
    flying: set[str] = set()
    marks: set[str] = set()
    for event in item.events:
        match event:
            case Wait(handle=handle):
                need(handle in issued, f"rank {item.rank} waits for {handle}, not issued yet")
                flying.discard(handle)
            case Await(mark=mark):
                need(mark in marks, f"rank {item.rank} awaits {mark}, not recorded yet")
            case Record(mark=mark):
                marks.add(mark)
            case Sync():
                flying.clear()
            case _:
                issued.add(handle_of(event))
                flying.add(handle_of(event))
    left = sorted(flying - {""})
    need(not left, f"nothing on rank {item.rank} waits for {', '.join(left)}")


class _Run:
    """A program without conditions, and the numbers of its steps."""

    def __init__(self, program: TimeProgram, numbers: Cursor) -> None:
        self.program = program
        self.ranks = {item.rank: item for item in program.ranks}
        matching = match(program)
        for fault in matching.faults:
            raise NotShownError(fault.message)
        self.graph = build(program, matching, waits=False)
        queue = not program.machine.concurrent
        self.waits = build(program, matching, waits=True, one_queue=queue)
        self.numbers = self._rising(self.waits, numbers)

    def _rising(self, graph: Graph, at: Cursor) -> list[int]:
        """Numbers that rise along every edge: so there is no circle of waits."""
        need(not graph.never, "a step waits for something that never happens")
        size = len(graph.steps)
        numbers = list(accumulate(islice(unpacked(at), size + 1)))
        if len(numbers) != size:
            raise at.fail("not a number for each step", f"{size} integers")
        for node, successors in enumerate(graph.after):
            for then in successors:
                if numbers[node] >= numbers[then]:
                    raise at.fail(
                        f"{self._name(graph, then)} does not come after what it waits for"
                    )
        return numbers

    def check(self, paths: Iterator[int]) -> None:
        """Accesses that conflict are ordered by the paths, and every read sees its write."""
        shown: set[tuple[Unit, Unit]] = set()
        for piece in pieces(self.program, self._start):
            for first, then in neighbours(piece):
                pair = first.unit, then.unit
                if pair not in shown and not self._path(*pair, paths):
                    both = f"{self._show(pair[0])} and {self._show(pair[1])}"
                    raise NotShownError(f"no order of {both}, which use {piece.buffer}")
                shown.add(pair)
            self._values(piece)
        need(next(paths, None) is None, "more paths than pairs to be ordered")

    def _path(self, first: Unit, then: Unit, paths: Iterator[int]) -> bool:
        """Whether one has ended before the other starts: they share a stream, or a path leads from
        one to the other. Each of its edges begins some nodes further on the stream that the last
        one led to, and is named by its place among the edges there."""
        node, goal = self.graph.end(first), self.graph.start((then[0], then[1], -1))
        if self.graph.follows(node, goal):
            return True
        for _ in range(next(paths, 0)):
            ahead, edge = next(paths, -1), next(paths, -1)
            if ahead and not self.graph.follows(node, node + ahead):
                return False
            after = self.graph.after[node + ahead]
            if not 0 <= edge < len(after):
                return False
            node = after[edge]
        return node == goal or self.graph.follows(node, goal)

    def _values(self, piece: Piece) -> None:
        """Every read sees the write that it has to see, and nobody uses what is undefined."""
        last: Unit | None = None
        for touch in piece.touches:
            writer = None if last is None else self._event(last)
            here = f"{piece.buffer} for {self._show(touch.unit)}"
            if touch.writes:
                fresh = isinstance(self._event(touch.unit), Alloc)
                need(fresh or not isinstance(writer, Free), f"{here} is freed")
                last = touch.unit
                continue
            need(not isinstance(writer, Alloc | Free), f"{here} is undefined")
            rank, wanted = touch.unit[0], touch.access.of
            if wanted:
                seen = last is not None and last[0] == rank and self._whole(last).label == wanted
                need(seen, f"{here} is not what {wanted} wrote")
            elif last is None:
                given = not piece.written or piece.buffer in self.ranks[rank].holds
                need(given, f"{here} is not written yet")

    def _start(self, unit: Unit) -> int:
        return self.numbers[self.waits.start((unit[0], unit[1], -1))]

    def _whole(self, unit: Unit) -> Event:
        return self.ranks[unit[0]].events[unit[1]]

    def _event(self, unit: Unit) -> Event:
        return leaves(self._whole(unit))[max(unit[2], 0)]

    def _show(self, unit: Unit) -> str:
        return f"{show_event(self._event(unit))} on rank {unit[0]}"

    def _name(self, graph: Graph, node: int) -> str:
        step = graph.steps[node]
        return "a collective" if step is None else f"the {step[3]} of {self._show(step[:3])}"
