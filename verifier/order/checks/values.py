"""Where accesses are ordered: whether a read sees what it has to."""

from collections.abc import Iterator

from shardproof.verifier.order.checks.base import Check
from shardproof.verifier.order.checks.races import unordered
from shardproof.verifier.order.context import Context
from shardproof.verifier.order.events import Alloc, Free
from shardproof.verifier.order.pieces import Piece, Touch
from shardproof.verifier.order.printing import show_event
from shardproof.verifier.order.violation import Violation


def _wrong(ctx: Context) -> Iterator[Violation]:
    if not ctx.ends or ctx.order is None:
        return
    told: set[tuple[object, ...]] = set()
    for piece in ctx.pieces:
        if next(unordered(ctx, piece), None) is not None:
            continue
        for name, why, reader, writer in _reads(ctx, piece):
            key = (name, reader.unit, writer.unit if writer else None)
            if key in told:
                continue
            told.add(key)
            units = [reader.unit, *([writer.unit] if writer else [])]
            yield Violation(name, why, ctx.places(units), ctx.reach(reader.unit))


def _reads(ctx: Context, piece: Piece) -> Iterator[tuple[str, str, Touch, Touch | None]]:
    """All writes of the piece are ordered, so the last one before a read is what it sees."""
    last: Touch | None = None
    for touch in piece.touches:
        if touch.writes:
            freed = last is not None and isinstance(ctx.event(last.unit), Free)
            if freed and not isinstance(ctx.event(touch.unit), Alloc):
                why = f"{piece.buffer} is written after it was freed"
                yield "undefined_use", why, touch, last
            last = touch
            continue
        why = _fault(ctx, piece, touch, last)
        if why:
            yield "dependency" if touch.access.of else "undefined_use", why, touch, last


def _fault(ctx: Context, piece: Piece, read: Touch, last: Touch | None) -> str:
    rank, wanted = ctx.ranks[read.unit[0]], read.access.of
    if last is None:
        if wanted:
            return f"{piece.buffer} is read before {wanted} has written it"
        held = piece.buffer in rank.holds or not piece.written
        return "" if held else f"{piece.buffer} is read before anything is written to it"
    event = ctx.event(last.unit)
    if isinstance(event, Alloc | Free):
        return f"{piece.buffer} is read after {show_event(event)}, which leaves it undefined"
    label = ctx.whole(last.unit).label
    if wanted and (label != wanted or last.unit[0] != read.unit[0]):
        by = label or show_event(event)
        return f"{piece.buffer} holds what {by} wrote, where {wanted}'s value is wanted"
    return ""


VALUES = (
    Check(
        "dependency",
        "A read that says whose write it has to see sees that one.",
        "The buffer was overwritten before the read, or not yet written.",
        _wrong,
    ),
    Check(
        "undefined_use",
        "Nothing is read before it is written or after it is allocated anew, nor used once freed.",
        "Memory with undefined content is read, or memory of somebody else used.",
        _wrong,
    ),
)
