"""Terms that are the entries of another in another order: chains of reshapes and permutations."""

from collections.abc import Sequence

from shardproof.verifier.kernel.program.registry import ONE
from shardproof.verifier.terms import Terms

Digit = tuple[int, int]
"""A digit of the number of an entry: its extent, and how far apart its entries are."""
View = tuple[int, tuple[Digit, ...]]
"""A source, and where its entries stand, in row-major order."""
MOVES = ("reshape", "permute")


def view(terms: Terms, id: int) -> View:
    """What a term is a rearrangement of: as far down as its digits do not cut each other."""
    chain: list[int] = []
    while terms[id].op in MOVES and terms[id].args[0].coef == ONE:
        chain.append(id)
        id = terms[id].args[0].id
    dims = _rows(terms[id].shape)
    for made in reversed(chain):
        term = terms[made]
        if term.op == "permute":
            order: tuple[int, ...] = term.attrs[0]
            dims = [dims[d] for d in order]
            continue
        found = _regrouped([a for dim in dims for a in dim], term.shape)
        id, dims = (id, found) if found is not None else (made, _rows(term.shape))
    return id, _merged([a for dim in dims for a in dim])


def _rows(shape: Sequence[int]) -> list[list[Digit]]:
    out: list[list[Digit]] = []
    step = 1
    for extent in reversed(shape):
        out.append([(extent, step)])
        step *= extent
    return out[::-1]


def _regrouped(digits: list[Digit], shape: Sequence[int]) -> list[list[Digit]] | None:
    """The digits dealt out to dims; None where an extent cuts one, or where nothing is in them."""
    if 0 in shape:
        return None
    left = [d for d in reversed(digits) if d[0] != 1]
    out: list[list[Digit]] = []
    for need in shape:
        mine: list[Digit] = []
        while need > 1:
            if not left:
                return None
            size, step = left.pop()
            if size % need and need % size:
                return None
            taken = min(size, need)
            mine.append((taken, step * (size // taken)))
            if taken < size:
                left.append((size // taken, step))
            need //= taken
        out.append(mine)
    return out


def _merged(digits: Sequence[Digit]) -> tuple[Digit, ...]:
    out: list[Digit] = []
    for size, step in digits:
        if size == 1:
            continue
        if out and out[-1][1] == size * step:
            size *= out.pop()[0]
        out.append((size, step))
    return tuple(out)
