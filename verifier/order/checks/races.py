"""Two accesses of the same entries, one of them a write, that nothing orders."""

from collections.abc import Iterator

from shardproof.verifier.order.checks.base import Check
from shardproof.verifier.order.context import Context
from shardproof.verifier.order.events import Alloc, Free
from shardproof.verifier.order.pieces import Piece, Touch, neighbours
from shardproof.verifier.order.violation import Violation


def unordered(ctx: Context, piece: Piece) -> Iterator[tuple[Touch, Touch]]:
    """Pairs of accesses that conflict and can happen at the same time."""
    for first, then in neighbours(piece):
        if not ctx.ordered(first.unit, then.unit):
            yield first, then


def kind(ctx: Context, a: Touch, b: Touch) -> str:
    """The check that a pair belongs to; `a` is issued first where both are on one rank."""
    events = (ctx.event(a.unit), ctx.event(b.unit))
    if any(isinstance(event, Alloc | Free) for event in events):
        return "use_after_free"
    if a.unit[0] != b.unit[0] or not ctx.asynchronous(a.unit):
        return "data_race"
    if a.writes and b.writes and ctx.asynchronous(b.unit):
        return "buffer_aliasing"
    return "missing_wait" if a.writes else "in_flight_overwrite"


def _conflicts(ctx: Context) -> Iterator[Violation]:
    """Every unordered pair, once."""
    if not ctx.ends or ctx.order is None:
        return
    found: dict[tuple[object, ...], tuple[Touch, Touch, str]] = {}
    for piece in ctx.pieces:
        for first, second in unordered(ctx, piece):
            a, b = sorted((first, second), key=lambda touch: touch.unit)
            found.setdefault((kind(ctx, a, b), a.unit, b.unit), (a, b, piece.buffer))
    for (name, *_), (a, b, buffer) in found.items():
        verbs = "written twice" if a.writes and b.writes else f"{_verb(a)} and {_verb(b)}"
        why = f"{buffer} is {verbs} at the same time: nothing orders the two"
        yield Violation(str(name), why, ctx.places((a.unit, b.unit)), ctx.overlap(a.unit, b.unit))


def _verb(touch: Touch) -> str:
    return "written" if touch.writes else "read"


RACES = (
    Check(
        "data_race",
        "Any two events that touch the same entries, one writing, are ordered.",
        "Two streams or ranks touch the same entries in either order.",
        _conflicts,
    ),
    Check(
        "missing_wait",
        "What an asynchronous event writes is touched only after a wait for it.",
        "The result of an asynchronous event is used while it is still being written.",
        _conflicts,
    ),
    Check(
        "buffer_aliasing",
        "No two asynchronous events write the same entries at the same time.",
        "Two events in flight write one buffer; either result may be left.",
        _conflicts,
    ),
    Check(
        "in_flight_overwrite",
        "What an asynchronous event reads is written again only after a wait for it.",
        "A buffer is filled anew while a collective or a send still reads it.",
        _conflicts,
    ),
    Check(
        "use_after_free",
        "Buffers are freed after every use, on whatever stream.",
        "Memory is given back, and may be given to somebody else, while it is in use.",
        _conflicts,
    ),
)
