"""Handles and marks: issued before they are waited for, and waited for."""

from collections.abc import Iterator

from shardproof.verifier.order import events as ev
from shardproof.verifier.order.checks.base import Check
from shardproof.verifier.order.context import Context
from shardproof.verifier.order.matching import Unit
from shardproof.verifier.order.sorting import sort
from shardproof.verifier.order.violation import Trace, Violation


def _orphans(ctx: Context) -> Iterator[Violation]:
    if not ctx.ends:
        return
    for item in ctx.program.ranks:
        waited: set[str] = set()
        for index in reversed(range(len(item.events))):
            event = item.events[index]
            if isinstance(event, ev.Sync):
                break
            if isinstance(event, ev.Wait):
                waited.add(event.handle)
            elif ev.handle_of(event) and ev.handle_of(event) not in waited:
                unit = (item.rank, index, -1)
                why = f"nothing waits for {ev.handle_of(event)}"
                yield Violation("orphaned_handle", why, (ctx.place(unit),), _left(ctx, unit))


def _left(ctx: Context, unit: Unit) -> Trace:
    """An execution in which all is done but this."""
    end = ctx.waiting.end(unit)
    order, _ = sort(ctx.waiting, late=[end])
    return Trace(ctx.program, ctx.waiting.trace(order[: order.index(end)]), "waits")


def _unissued(ctx: Context) -> Iterator[Violation]:
    for item in ctx.program.ranks:
        issued: set[str] = set()
        for index, event in enumerate(item.events):
            if isinstance(event, ev.Wait) and event.handle not in issued:
                later = any(ev.handle_of(e) == event.handle for e in item.events[index:])
                when = "is issued only later" if later else "is not issued"
                place = ctx.place((item.rank, index, -1))
                yield Violation(
                    "unissued_handle", f"handle {event.handle} {when}", (place,), ctx.stuck()
                )
            issued.add(ev.handle_of(event))


def _unrecorded(ctx: Context) -> Iterator[Violation]:
    if not ctx.ends:
        return
    for item in ctx.program.ranks:
        recorded: set[str] = set()
        for index, event in enumerate(item.events):
            if isinstance(event, ev.Await) and event.mark not in recorded:
                place = ctx.place((item.rank, index, -1))
                why = f"mark {event.mark} is awaited before it is recorded: that waits for nothing"
                yield Violation("unrecorded_mark", why, (place,), ctx.stuck())
            if isinstance(event, ev.Record):
                recorded.add(event.mark)


HANDLES = (
    Check(
        "unissued_handle",
        "Every wait comes after the event that issues its handle.",
        "A wait for work that nobody has begun.",
        _unissued,
    ),
    Check(
        "unrecorded_mark",
        "Every awaited mark was recorded before, in issue order.",
        "Awaiting a mark that is not recorded yet waits for nothing.",
        _unrecorded,
    ),
    Check(
        "orphaned_handle",
        "Every asynchronous event is waited for, or followed by a sync of its rank.",
        "It may still run when the rank is done.",
        _orphans,
    ),
)
