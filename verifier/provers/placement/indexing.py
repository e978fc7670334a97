"""Gathers and scatters by index values, in the window of rows that a rank has."""

from collections.abc import Sequence

from shardproof.verifier.kernel.layout import Atom, Dim, Layout, bound, local_extent, normal
from shardproof.verifier.kernel.ops import indexing
from shardproof.verifier.kernel.program.registry import (
    Op,
    Refused,
)
from shardproof.verifier.kernel.program.types import Affine
from shardproof.verifier.provers.placement.rule import Operands, Placed, of_ops

Offset = int | Affine


def window(dim: Dim, offset: Offset) -> str | None:
    """The mesh dim over which `dim` is split with each rank's window starting at `offset`.

    None for an unsplit dim at offset 0. Raises Refused where offset and split disagree.
    """
    affine = offset if isinstance(offset, Affine) else Affine.of(offset)
    names = list(bound(dim))
    if not names:
        if affine != Affine():
            raise Refused(f"the index window starts at {affine}, the rows are not split", None, 0)
        return None
    if len(names) > 1 or dim[0].mesh_dim is None:
        raise Refused(
            f"the rows are sharded over {', '.join(names)} in pieces, not in one block", names[0], 0
        )
    expected = Affine.of(0, {names[0]: local_extent(dim)})
    if affine != expected:
        raise Refused(
            f"the index window starts at {affine}, the rows of a rank at {expected}", names[0], 0
        )
    return names[0]


def _no_fold(op: Op, layout: Layout, operand: int) -> None:
    if layout.partial:
        name, fold = layout.partial[0]
        raise Refused(f"the index is a partial {fold} over {name}", name, operand)


def _combine(values: Layout, names: list[str | None], dims: Sequence[Dim]) -> Layout:
    partial = dict(values.partial)
    for name, fold in values.partial:
        if fold != "sum":
            raise Refused(
                f"a pending {fold} over {name} does not pass through a masked lookup", name, 0
            )
    for name in names:
        if name is not None:
            if name in partial:
                raise Refused(f"rows are sharded over {name}, over which a sum is pending", name, 0)
            partial[name] = "sum"
    used = [n for d in dims for n in bound(d)]
    clash = next((n for n in used if used.count(n) > 1 or n in partial), None)
    if clash:
        raise Refused(f"index and rows are both sharded over {clash}", clash, 1)
    return Layout(tuple(dims)).with_partial(partial.items())


@of_ops(indexing.take)
def _take_place(op: Op, given: Operands) -> list[Placed]:
    x, idx = given.layouts
    dim = given.number("dim")
    _no_fold(op, idx, 1)
    name = window(x.dims[dim], given.attr("offset"))
    layout = _combine(x, [name], (*x.dims[:dim], *idx.dims, *x.dims[dim + 1 :]))
    for other in x.partial:
        if other[0] in idx.sharded:
            raise Refused(f"the index is sharded over {other[0]}", other[0], 1)
    facts = (f"windows of {name} cover the rows once",) if name else ()
    return [Placed((layout,), (("dim", dim), ("offset", 0)), facts=facts)]


def _windowed_size(
    op: Op, given: Operands, mesh_dims: frozenset[str]
) -> list[tuple[int, str | None]]:
    """(global size, mesh dim) readings of `size` and `offset`."""
    size, offset = given.number("size"), given.attr("offset")
    affine = offset if isinstance(offset, Affine) else Affine.of(offset)
    if affine == Affine():
        return [(size, None)]
    if affine.const == 0 and len(affine.terms) == 1 and affine.terms[0][1] == size:
        name = affine.terms[0][0]
        if name in given.mesh:
            return [(size * given.mesh[name], name)]
    raise Refused(f"{op.name} into a window of {size} rows that starts at {affine}", None, 0)


@of_ops(indexing.index_add)
def _index_add_place(op: Op, given: Operands) -> list[Placed]:
    g, idx = given.layouts
    _no_fold(op, idx, 1)
    (total, name) = _windowed_size(op, given, g.mentioned)[0]
    n = len(idx.dims)
    if g.dims[:n] != idx.dims:
        raise Refused(
            "values and index are split differently",
            next(iter(sorted(g.sharded ^ idx.sharded)), None),
            1,
        )
    if name and name in g.mentioned | idx.mentioned:
        raise Refused(f"rows are sharded over {name}, and so are the values", name, 0)
    atoms = [Atom(given.mesh[name], name)] if name else []
    rows = normal([*atoms, Atom(given.number("size"))])
    partial = dict(g.partial)
    for d in idx.dims:
        for axis in bound(d):
            partial[axis] = "sum"
    for axis, fold in partial.items():
        if fold != "sum":
            raise Refused(f"adds up a pending {fold} over {axis}", axis, 0)
    layout = Layout((rows, *g.dims[n:])).with_partial(partial.items())
    return [Placed((layout,), (("offset", 0), ("size", total)))]


def _along(op: Op, given: Operands) -> tuple[Layout, Layout, int]:
    """Values and index, split in the same way but for the dim, which is the third."""
    x, idx = given.layouts
    dim = given.number("dim")
    _no_fold(op, idx, 1)
    for i, (a, b) in enumerate(zip(x.dims, idx.dims, strict=True)):
        if i != dim and a != b:
            name = next(iter((*bound(a), *bound(b))), None)
            raise Refused(f"values and index are sharded differently at dim {i}", name, 1)
    return x, idx, dim


@of_ops(indexing.take_along)
def _take_along_place(op: Op, given: Operands) -> list[Placed]:
    x, idx, dim = _along(op, given)
    name = window(x.dims[dim], given.attr("offset"))
    layout = _combine(x, [name], idx.dims)
    return [Placed((layout,), (("dim", dim), ("offset", 0)))]


@of_ops(indexing.put_along)
def _put_along_place(op: Op, given: Operands) -> list[Placed]:
    g, idx, dim = _along(op, given)
    along = (*bound(idx.dims[dim]), *bound(g.dims[dim]))
    if along:
        raise Refused(f"the index is sharded along dim {dim}", along[0], 1)
    total, name = _windowed_size(op, given, g.mentioned)[0]
    if name and name in g.mentioned | idx.mentioned:
        raise Refused(f"lines are sharded over {name}, and so are the values", name, 0)
    for axis, fold in g.partial:
        if fold != "sum":
            raise Refused(f"spreads a pending {fold} over {axis}", axis, 0)
    atoms = [Atom(given.mesh[name], name)] if name else []
    layout = g.with_dim(dim, normal([*atoms, Atom(given.number("size"))]))
    return [Placed((layout,), (("dim", dim), ("offset", 0), ("size", total)))]


def shard_offset(dim: Dim) -> Offset:
    """The offset that makes a windowed lookup right for rows laid out as `dim`."""
    names = list(bound(dim))
    if not names:
        return 0
    if len(names) > 1 or dim[0].mesh_dim is None:
        raise Refused("rows are not split in one block", names[0], 0)
    return Affine.of(0, {names[0]: local_extent(dim)})
