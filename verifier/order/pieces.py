"""Who touches which entries of which buffer, and which touches have to be ordered."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardproof.verifier.order.events import Access, TimeProgram, accesses, leaves
from shardproof.verifier.order.matching import Unit


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


def pieces(program: TimeProgram, start: Callable[[Unit], int]) -> list[Piece]:
    """The pieces of every buffer that is written, or ought to be, touches sorted by `start`."""
    by_buffer: dict[tuple[int, str], list[Touch]] = {}
    for item in program.ranks:
        for index, event in enumerate(item.events):
            whole = len(leaves(event)) == 1 and leaves(event)[0] is event
            for part, leaf in enumerate(leaves(event)):
                unit = (item.rank, index, -1 if whole else part)
                for access, writes in accesses(leaf):
                    owner = -1 if access.buffer in program.shared else item.rank
                    touch = Touch(unit, access, writes)
                    by_buffer.setdefault((owner, access.buffer), []).append(touch)
    out: list[Piece] = []
    for (owner, buffer), found in by_buffer.items():
        written = any(touch.writes for touch in found)
        if written or any(touch.access.of for touch in found):
            found.sort(key=lambda touch: (start(touch.unit), touch.unit, touch.writes))
            out += [Piece(buffer, owner, touches, written) for touches in _split(found)]
    return out


def neighbours(piece: Piece) -> Iterator[tuple[Touch, Touch]]:
    """The conflicting touches, one of them a write, that it is enough to find ordered.

    Every read comes after the last write, every write after the last write and the reads since. If
    all these are ordered, all that conflict are, in the order of the piece.
    """
    write: Touch | None = None
    reads: list[Touch] = []
    for touch in piece.touches:
        for other in (write, *reads) if touch.writes else (write,):
            if other is not None and other.unit != touch.unit:
                yield other, touch
        if touch.writes:
            write, reads = touch, []
        else:
            reads.append(touch)


def _split(touches: list[Touch]) -> Iterator[tuple[Touch, ...]]:
    """A buffer ends where the last span of it ends; without spans it is one piece."""
    cuts = sorted({0, *(cut for t in touches if t.access.span for cut in t.access.span)})
    if len(cuts) == 1:
        yield tuple(touches)
    for lo in cuts[:-1]:
        yield tuple(t for t in touches if not t.access.span or _holds(t.access.span, lo))


def _holds(span: tuple[int, int], entry: int) -> bool:
    return span[0] <= entry < span[1]
