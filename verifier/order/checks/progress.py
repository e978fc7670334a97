"""Whether every rank comes to its end."""

from collections.abc import Iterator

from shardproof.verifier.order.checks.base import Check
from shardproof.verifier.order.context import Context
from shardproof.verifier.order.graph import Graph
from shardproof.verifier.order.matching import Unit
from shardproof.verifier.order.sorting import sort
from shardproof.verifier.order.violation import Trace, Violation


def _deadlock(ctx: Context) -> Iterator[Violation]:
    if ctx.ends:
        return
    units = cycle(ctx.waiting, ctx.run[1])
    if units:
        yield Violation("deadlock", _chain(units), ctx.places(units), ctx.stuck())


def _launch(ctx: Context) -> Iterator[Violation]:
    if not ctx.ends or ctx.program.machine.concurrent:
        return
    order, stuck = sort(ctx.queued)
    units = cycle(ctx.queued, stuck)
    if units:
        trace = Trace(ctx.program, ctx.queued.trace(order), "queue")
        why = f"{_chain(units)}, if a rank runs its collectives one at a time"
        yield Violation("launch_order", why, ctx.places(units), trace)


def _consistent(ctx: Context) -> Iterator[Violation]:
    if ctx.order is not None:
        return
    order, stuck = sort(ctx.graph)
    units = cycle(ctx.graph, stuck)
    if units:
        why = f"{_chain(units)}, even where sends need no receive: nothing is ordered"
        trace = Trace(ctx.program, ctx.graph.trace(order), "eager")
        yield Violation("consistent_order", why, ctx.places(units), trace)


def cycle(graph: Graph, stuck: set[int]) -> list[Unit]:
    """Units that wait for each other, each for the next; empty where there are none."""
    before: dict[int, list[int]] = {node: [] for node in stuck}
    for node in stuck:
        for then in graph.after[node]:
            before[then].append(node)
    done: set[int] = set()
    for root in sorted(stuck):
        found = _walk(root, before, done)
        if found:
            steps = [step for node in found if (step := graph.steps[node]) is not None]
            return list(dict.fromkeys((rank, index, part) for rank, index, part, _ in steps))
    return []


def _walk(root: int, before: dict[int, list[int]], done: set[int]) -> list[int]:
    """Depth-first, against the edges."""
    path: list[int] = []
    place: dict[int, int] = {}
    todo: list[tuple[int, int]] = [(root, 0)]
    while todo:
        node, tried = todo.pop()
        if tried == 0:
            if node in done:
                continue
            place[node] = len(path)
            path.append(node)
        if tried == len(before[node]):
            done.add(node)
            path.pop()
            del place[node]
            continue
        todo.append((node, tried + 1))
        then = before[node][tried]
        if then in place:
            return path[place[then] :]
        if then not in done:
            todo.append((then, 0))
    return []


def _chain(units: list[Unit]) -> str:
    ranks = sorted({unit[0] for unit in units})
    if len(ranks) == 1:
        return f"rank {ranks[0]} waits for itself"
    return f"ranks {', '.join(map(str, ranks))} wait for each other"


PROGRESS = (
    Check(
        "deadlock",
        "Every rank comes to its end, though sends wait for their receives and members of a "
        "collective for all others.",
        "Ranks wait for each other in a circle.",
        _deadlock,
    ),
    Check(
        "launch_order",
        "Every rank comes to its end even where its collectives, on whatever communicators, run "
        "one after another in issue order. Not asked of a machine said to be concurrent.",
        "Ranks issue collectives of several communicators in orders that do not fit, which hangs "
        "where a device runs one at a time.",
        _launch,
    ),
    Check(
        "consistent_order",
        "Happens-before has no circle, so its answers mean something.",
        "The order contradicts itself: nothing is concluded from it.",
        _consistent,
    ),
)
