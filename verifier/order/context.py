"""What the checks of one program share, computed when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, TypeVar

from shardproof.verifier.order.events import Event, TimeProgram, handle_of, leaves
from shardproof.verifier.order.graph import Graph, build
from shardproof.verifier.order.matching import Matching, Place, Step, Unit, match
from shardproof.verifier.order.order import Cyclic, Order
from shardproof.verifier.order.pieces import Piece, pieces
from shardproof.verifier.order.sorting import predecessors, sort
from shardproof.verifier.order.violation import Trace

T = TypeVar("T")


class Context:
    """One program without conditions."""

    def __init__(self, program: TimeProgram) -> None:
        self.program = program
        self.ranks = {item.rank: item for item in program.ranks}
        self._answers: dict[Any, list[Any]] = {}

    @cached_property
    def matching(self) -> Matching:
        return match(self.program)

    @cached_property
    def waiting(self) -> Graph:
        """All that may make a rank wait."""
        return build(self.program, self.matching, waits=True)

    @cached_property
    def run(self) -> tuple[list[int], set[int]]:
        """As far as the program gets, and what never happens."""
        return sort(self.waiting)

    @property
    def ends(self) -> bool:
        """Whether every rank comes to its end."""
        return not self.run[1]

    @cached_property
    def graph(self) -> Graph:
        """What comes before what on every machine."""
        return build(self.program, self.matching, waits=False)

    @cached_property
    def order(self) -> Order | None:
        """Happens-before; None where its edges contradict each other."""
        try:
            return Order(self.graph)
        except Cyclic:
            return None

    @cached_property
    def queued(self) -> Graph:
        """All that may make a rank wait where its collectives share one queue, if they do."""
        if self.program.machine.concurrent:
            return self.waiting
        return build(self.program, self.matching, waits=True, one_queue=True)

    @cached_property
    def pieces(self) -> list[Piece]:
        """Of the buffers, with accesses in an order that respects happens-before."""
        assert self.order is not None
        rank = self.order.rank
        return pieces(self.program, lambda unit: rank[self.start(unit)])

    @cached_property
    def _before(self) -> list[list[int]]:
        return predecessors(self.graph)

    def once(self, find: Callable[[Context], Iterable[T]]) -> list[T]:
        """What a function that several checks ask has found."""
        if find not in self._answers:
            self._answers[find] = list(find(self))
        return self._answers[find]

    def event(self, unit: Unit) -> Event:
        """The event, or the part of a group."""
        event = self.ranks[unit[0]].events[unit[1]]
        return leaves(event)[unit[2]] if unit[2] >= 0 else event

    def whole(self, unit: Unit) -> Event:
        return self.ranks[unit[0]].events[unit[1]]

    def asynchronous(self, unit: Unit) -> bool:
        return bool(handle_of(self.whole(unit)))

    def place(self, unit: Unit) -> Place:
        event = self.event(unit)
        if not str(event.source):
            event = self.whole(unit)
        return Place(unit[0], unit[1], event, unit[2])

    def places(self, units: Iterable[Unit]) -> tuple[Place, ...]:
        return tuple(self.place(unit) for unit in units)

    def start(self, unit: Unit) -> int:
        """Parts of a group start with it."""
        return self.graph.start((unit[0], unit[1], -1))

    def ordered(self, first: Unit, then: Unit) -> bool:
        """Whether `first` has ended before `then` starts, in every execution."""
        assert self.order is not None
        return self.order.before(self.graph.end(first), self.start(then))

    def stuck(self) -> Trace:
        """As far as the program gets."""
        return Trace(self.program, self.waiting.trace(self.run[0]), "waits")

    def until(self, *nodes: int) -> set[int]:
        """The nodes and all that comes before them."""
        seen, todo = set(nodes), list(nodes)
        while todo:
            for node in self._before[todo.pop()]:
                if node not in seen:
                    seen.add(node)
                    todo.append(node)
        return seen

    def reach(self, unit: Unit) -> Trace:
        """The shortest execution in which the unit ends."""
        return Trace(self.program, self._steps(self.until(self.graph.end(unit))))

    def overlap(self, a: Unit, b: Unit) -> Trace:
        """An execution in which two unordered units run at the same time."""
        starts = [self.start(a), self.start(b)]
        first = self.until(*starts)
        rest = self.until(self.graph.end(a), self.graph.end(b)) - first
        return Trace(self.program, (*self._steps(first), *self._steps(rest)))

    def _steps(self, nodes: set[int]) -> tuple[Step, ...]:
        return self.graph.trace(sort(self.graph, nodes)[0])
