"""Who touches which entries of which buffer, in an order that respects happens-before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verifier.order.context import Context
from verifier.order.events import Access, accesses, leaves
from verifier.order.matching import Unit


@dataclass(frozen=True, slots=True)
class Touch:
    """One unit on one piece of a buffer."""

    unit: Unit
    access: Access
    writes: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries that every access takes as a whole or not at all."""

    buffer: str
    owner: int
    """-1 where all ranks share it."""
    touches: tuple[Touch, ...]
    """By start, reads of a unit before its writes."""
    written: bool
    """Whether anybody writes the buffer; if not, it is given."""


def pieces(ctx: Context) -> list[Piece]:
    """The pieces of every buffer that is written, or ought to be. Asked through `ctx.once`."""
    assert ctx.order is not None
    rank = ctx.order.rank
    by_buffer: dict[tuple[int, str], list[tuple[tuple[int, Unit, bool], Touch]]] = {}
    for item in ctx.program.ranks:
        for index, event in enumerate(item.events):
            whole = len(leaves(event)) == 1 and leaves(event)[0] is event
            for part, leaf in enumerate(leaves(event)):
                unit = (item.rank, index, -1 if whole else part)
                at = rank[ctx.start(unit)]
                for access, writes in accesses(leaf):
                    owner = -1 if access.buffer in ctx.program.shared else item.rank
                    touch = Touch(unit, access, writes)
                    by_buffer.setdefault((owner, access.buffer), []).append(
                        ((at, unit, writes), touch)
                    )
    out: list[Piece] = []
    for (owner, buffer), found in by_buffer.items():
        written = any(touch.writes for _, touch in found)
        if written or any(touch.access.of for _, touch in found):
            found.sort(key=lambda entry: entry[0])
            for touches in _split([touch for _, touch in found]):
                out.append(Piece(buffer, owner, touches, written))
    return out


def _split(touches: list[Touch]) -> Iterator[tuple[Touch, ...]]:
    """A buffer ends where the last span of it ends; without spans it is one piece."""
    cuts = sorted({0, *(cut for t in touches if t.access.span for cut in t.access.span)})
    if len(cuts) == 1:
        yield tuple(touches)
    for lo in cuts[:-1]:
        yield tuple(t for t in touches if not t.access.span or _holds(t.access.span, lo))


def _holds(span: tuple[int, int], entry: int) -> bool:
    return span[0] <= entry < span[1]
