"""Layouts made from layouts: replicated, split once more, matched to another operand."""

from collections.abc import Collection, Sequence

from shardproof.verifier.kernel.layout import (
    Atom,
    Dim,
    Layout,
    bound,
    global_extent,
    normal,
    split_leading,
    whole,
)


def without(layout: Layout, names: Collection[str]) -> Layout:
    """The layout with some mesh dims replicated."""
    dims = tuple(
        normal(Atom(a.size) if a.mesh_dim in names else a for a in dim) for dim in layout.dims
    )
    return Layout(dims, tuple(p for p in layout.partial if p[0] not in names))


def split(layout: Layout, name: str, size: int, dim: int) -> Layout | None:
    """The layout with `dim` split over one more mesh dim; None where it does not divide."""
    chunk = split_leading(layout.dims[dim], size, name)
    return None if chunk is None else layout.with_dim(dim, chunk)


def beside(shape: tuple[int, ...], others: Sequence[Layout], rank: int) -> Layout:
    """The layout of a tensor made from nothing that goes with the other operands, aligned at the
    last of `rank` dims."""
    dims = [whole(n) for n in shape]
    for layout in others:
        for at, n in enumerate(shape):
            other = at + (rank - len(shape)) - (rank - len(layout.dims))
            if other < 0 or n == 1 or not bound(layout.dims[other]):
                continue
            if global_extent(layout.dims[other]) == n:
                dims[at] = layout.dims[other]
    return Layout(tuple(dims))


def match(mine: Layout, other: Layout) -> Layout | None:
    """`mine` laid out as `other` where their whole extents agree, aligned at the last dim.

    None where that changes nothing or binds a mesh dim twice.
    """
    rank = max(len(mine.dims), len(other.dims))
    dims = list(mine.dims)
    whole_mine, whole_other = mine.global_shape, other.global_shape
    for at in range(rank):
        a, b = at - (rank - len(dims)), at - (rank - len(other.dims))
        if a >= 0 and b >= 0 and whole_mine[a] == whole_other[b]:
            dims[a] = other.dims[b]
        elif a >= 0 and bound(dims[a]) and b >= 0:
            return None
    used = [n for d in dims for n in bound(d)]
    if len(set(used)) != len(used):
        return None
    partial = tuple(p for p in mine.partial if p[0] not in used)
    made = Layout(tuple(dims), partial)
    return made if made != mine else None


def aligned(mine: Layout, at: int, dim: Dim) -> Layout | None:
    """`mine` with one dim split as a dim of another operand is."""
    rest = without(mine, bound(dim))
    out = rest.with_dim(at, dim)
    used = [n for d in out.dims for n in bound(d)]
    return out if len(set(used)) == len(used) and out.global_shape == mine.global_shape else None
