"""The steps of a program as a graph: an edge where one step cannot happen before another.

Every event has a start and an end. The start of an asynchronous event has its place in its
stream, its end has none. Two readings: `waits=False` has only the edges that hold on every
machine, and is what "happens before" means; `waits=True` adds all that may make a rank wait
(a send waits for its receive, every member of a collective for all others), and is what a
deadlock is judged by. One queue: a rank runs its collectives one after another in issue order.
Provers and checker both start from this graph: it is defined here, and searched elsewhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from shardproof.verifier.order import events as ev
from shardproof.verifier.order.matching import Matching, Step, Unit


@dataclass
class Graph:
    """Nodes are numbers; some are only joints and have no step."""

    steps: list[Step | None] = field(default_factory=list["Step | None"])
    after: list[list[int]] = field(default_factory=list[list[int]])
    """Successors."""
    chain: list[int] = field(default_factory=list[int])
    """The stream that a node has its place in; -1 for none. Of two nodes of one stream, the one
    with the smaller number comes before the other."""
    node: dict[Step, int] = field(default_factory=dict[Step, int])
    never: set[int] = field(default_factory=set[int])
    """Nodes that nothing can make happen."""
    begins: dict[Unit, int] = field(default_factory=dict[Unit, int])
    """Where a collective joins: its start, or its turn in the queue."""

    def add(self, step: Step | None, chain: int = -1) -> int:
        self.steps.append(step)
        self.after.append([])
        self.chain.append(chain)
        number = len(self.steps) - 1
        if step is not None:
            self.node[step] = number
        return number

    def edge(self, before: int, after: int) -> None:
        self.after[before].append(after)

    def start(self, unit: Unit) -> int:
        return self.node[*unit, "start"]

    def end(self, unit: Unit) -> int:
        return self.node[*unit, "end"]

    def follows(self, before: int, after: int) -> bool:
        """Whether both are nodes that have their place in one stream, in this order."""
        return before < after < len(self.chain) and self.chain[before] == self.chain[after] >= 0

    def trace(self, order: Iterable[int]) -> tuple[Step, ...]:
        return tuple(step for node in order if (step := self.steps[node]) is not None)


def build(
    program: ev.TimeProgram, matching: Matching, *, waits: bool, one_queue: bool = False
) -> Graph:
    """The graph of a program without conditions."""
    graph = Graph()
    chains: dict[tuple[int, str], int] = {}
    for item in program.ranks:
        _rank(graph, item, chains)
        if one_queue:
            _queue(graph, item)
    _meet(graph, program, matching, waits)
    if waits:
        sends = _sends(program) if program.machine.buffered else set[Unit]()
        graph.never |= {graph.end(unit) for unit in matching.alone - sends}
    return graph


def _rank(graph: Graph, item: ev.RankEvents, chains: dict[tuple[int, str], int]) -> None:
    tails: dict[str, int] = {}
    base = -1
    handles: dict[str, int] = {}
    marks: dict[str, int] = {}
    for index, event in enumerate(item.events):
        chain = chains.setdefault((item.rank, event.stream), len(chains))
        unit = (item.rank, index, -1)
        start = graph.add((*unit, "start"), chain)
        tail = tails.get(event.stream, base)
        if tail >= 0:
            graph.edge(tail, start)
        handle = ev.handle_of(event)
        parts = [
            graph.add((item.rank, index, part, "end"))
            for part in range(len(ev.leaves(event)) if isinstance(event, ev.Group) else 0)
        ]
        end = graph.add((*unit, "end"), -1 if handle else chain)
        graph.edge(start, end)
        for part in parts:
            graph.edge(start, part)
            graph.edge(part, end)
        if handle:
            handles[handle] = end
            tails[event.stream] = start
            continue
        match event:
            case ev.Wait() if event.handle in handles:
                graph.edge(handles[event.handle], end)
            case ev.Wait():
                graph.never.add(end)
            case ev.Record():
                marks[event.mark] = end
            case ev.Await() if event.mark in marks:
                graph.edge(marks[event.mark], end)
            case ev.Join():
                other = tails.get(event.other, base)
                if other >= 0:
                    graph.edge(other, end)
            case ev.Sync():
                for other in {*tails.values(), *handles.values()} - {start}:
                    graph.edge(other, end)
                base = end
                tails = {}
            case _:
                pass
        tails[event.stream] = end


def _queue(graph: Graph, item: ev.RankEvents) -> None:
    last = -1
    for index, event in enumerate(item.events):
        if isinstance(event, ev.Collective):
            unit = (item.rank, index, -1)
            begin = graph.add(None)
            graph.edge(graph.start(unit), begin)
            if last >= 0:
                graph.edge(last, begin)
            graph.begins[unit] = begin
            graph.edge(begin, graph.end(unit))
            last = graph.end(unit)


def _meet(graph: Graph, program: ev.TimeProgram, matching: Matching, waits: bool) -> None:
    events = {item.rank: item.events for item in program.ranks}
    for units in matching.collectives:
        first = events[units[0][0]][units[0][1]]
        assert isinstance(first, ev.Collective)
        begins = {unit[0]: graph.begins.get(unit, graph.start(unit)) for unit in units}
        ends = {unit[0]: graph.end(unit) for unit in units}
        root = -1 if first.root is None else first.root
        if waits or first.op not in ev.ROOTED_OUT | ev.ROOTED_IN:
            joint = graph.add(None)
            for node in begins.values():
                graph.edge(node, joint)
            for node in ends.values():
                graph.edge(joint, node)
        elif first.op in ev.ROOTED_OUT:
            for rank, node in ends.items():
                if rank != root and root in begins:
                    graph.edge(begins[root], node)
        else:
            for rank, node in begins.items():
                if rank != root and root in ends:
                    graph.edge(node, ends[root])
    for send, recv in matching.pairs:
        graph.edge(_start(graph, send), graph.end(recv))
        if waits and not program.machine.buffered:
            graph.edge(_start(graph, recv), graph.end(send))


def _sends(program: ev.TimeProgram) -> set[Unit]:
    return {
        (item.rank, index, part if isinstance(event, ev.Group) else -1)
        for item in program.ranks
        for index, event in enumerate(item.events)
        for part, leaf in enumerate(ev.leaves(event))
        if isinstance(leaf, ev.Send)
    }


def _start(graph: Graph, unit: Unit) -> int:
    """Parts of a group start with it."""
    return graph.start((unit[0], unit[1], -1))
