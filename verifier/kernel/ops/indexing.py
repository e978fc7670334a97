"""Gathers and scatters by index values, with a window so that a shard of rows is the same op.

`offset` shifts the index: row `i - offset` is meant, and an index outside the rows at hand gives
(or receives) nothing. On a shard that starts at row `offset` this is the masked local lookup of
vocabulary-parallel layers (Shoeybi et al. 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.kernel.layout import Dim, Layout, bound, global_extent, local_extent
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Operands,
    Placed,
    Refused,
    Site,
    register,
)
from verifier.kernel.program.traits import Traits, among_or_zero
from verifier.kernel.program.types import Affine, TensorType

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
            f"the rows are split over {', '.join(names)} in pieces, not in one block", names[0], 0
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
        raise Refused(f"the index waits for a {fold} over {name}", name, operand)


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
                raise Refused(f"rows are split over {name}, over which a sum is pending", name, 0)
            partial[name] = "sum"
    used = [n for d in dims for n in bound(d)]
    clash = next((n for n in used if used.count(n) > 1 or n in partial), None)
    if clash:
        raise Refused(f"index and rows are both split over {clash}", clash, 1)
    return Layout(tuple(dims)).with_partial(partial.items())


def _zeros(d: Domain, shape: tuple[int, ...], like: Array) -> Array:
    """Zeros to add entries of `like` to."""
    return np.zeros(shape, np.int64) if is_index(like) else d.full(shape, Fraction(0))


def _window(index: Array, extent: int, offset: int) -> tuple[Array, Array]:
    local = index - offset
    inside = (local >= 0) & (local < extent)
    return np.where(inside, local, 0), inside


def _take_types(site: Site) -> tuple[TensorType, ...]:
    if len(site.types) != 2 or site.types[1].is_float:
        raise site.fail("takes rows and an integer index")
    x, idx = site.types
    dim: int = site.attrs["dim"]
    if not 0 <= dim < len(x.shape):
        raise site.fail(f"take along dim {dim}")
    return (TensorType((*x.shape[:dim], *idx.shape, *x.shape[dim + 1 :]), x.dtype),)


def _take(d: Domain, x: Array, idx: Array, dim: int, offset: int) -> Array:
    local, inside = _window(idx, x.shape[dim], offset)
    if x.shape[dim] == 0:
        x = _zeros(d, (*x.shape[:dim], 1, *x.shape[dim + 1 :]), x)
    out = np.take(x, local, axis=dim)
    mask = inside.reshape((1,) * dim + idx.shape + (1,) * (x.ndim - dim - 1))
    zero = np.zeros((), x.dtype) if x.dtype.kind in "ib" else d.const(Fraction(0))
    return np.where(mask, out, zero)


def _take_place(op: Op, given: Operands) -> list[Placed]:
    x, idx = given.layouts
    dim = given.number("dim")
    _no_fold(op, idx, 1)
    name = window(x.dims[dim], given.attr("offset"))
    layout = _combine(x, [name], (*x.dims[:dim], *idx.dims, *x.dims[dim + 1 :]))
    for other in x.partial:
        if other[0] in idx.sharded:
            raise Refused(f"the index is split over {other[0]}", other[0], 1)
    facts = (f"windows of {name} cover the rows once",) if name else ()
    return [Placed((layout,), (("dim", dim), ("offset", 0)), facts=facts)]


LOOKS = Traits(keeps=0, index=1, bounds=among_or_zero)
"""Of ops that read entries at indices, and 0 beside the window."""

take = register(
    Op(
        "take",
        "index",
        "... v ..., i -> ... i ...",
        _take,
        _take_types,
        _take_place,
        linear=(frozenset({0}),),
        attrs={"dim": 0, "offset": 0},
        flops=lambda types, results, _: 0,
        doc="Rows of `x` along `dim` at an index (embedding). Rows outside the window are zero.",
        traits=LOOKS,
    )
)


def _index_add_types(site: Site) -> tuple[TensorType, ...]:
    g, idx = site.types
    if g.shape[: len(idx.shape)] != idx.shape or idx.is_float:
        raise site.fail("the values must begin with the dims of the index")
    if g.dtype in ("bool", "u8"):
        raise site.fail(f"{g.dtype} values do not add up; cast them to i64 first")
    return (TensorType((site.attrs["size"], *g.shape[len(idx.shape) :]), g.dtype),)


def _index_add(d: Domain, g: Array, idx: Array, size: int, offset: int) -> Array:
    local, inside = _window(idx, size, offset)
    rest = g.shape[idx.ndim :]
    out = _zeros(d, (size, *rest), g)
    flat = g.reshape((idx.size, *rest))
    for row, (value, ok) in enumerate(zip(local.reshape(-1), inside.reshape(-1), strict=True)):
        if ok:
            out[value, ...] = d.add(out[value, ...], flat[row, ...])
    return out


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


def _index_add_place(op: Op, given: Operands) -> list[Placed]:
    from verifier.kernel.layout import Atom, normal

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
        raise Refused(f"rows are split over {name}, and so are the values", name, 0)
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


index_add = register(
    Op(
        "index_add",
        "index",
        "i ..., i -> v ...",
        _index_add,
        _index_add_types,
        _index_add_place,
        linear=(frozenset({0}),),
        attrs={"size": REQUIRED, "offset": 0},
        flops=lambda types, results, _: types[0].size,
        doc="Add each row of values into the row that its index names: the adjoint of `take`.",
        traits=Traits(keeps=0, index=1, adds=True),
    )
)


def _along_types(site: Site) -> tuple[TensorType, ...]:
    x, idx = site.types
    dim: int = site.attrs["dim"]
    if len(x.shape) != len(idx.shape) or idx.is_float or not 0 <= dim < len(x.shape):
        raise site.fail("takes values and an integer index of as many dims")
    if any(i != dim and a != b for i, (a, b) in enumerate(zip(x.shape, idx.shape, strict=True))):
        raise site.fail(f"values and index differ outside dim {dim}")
    return (TensorType(idx.shape, x.dtype),)


def _take_along(d: Domain, x: Array, idx: Array, dim: int, offset: int) -> Array:
    local, inside = _window(idx, x.shape[dim], offset)
    if x.shape[dim] == 0:
        x = _zeros(d, (*x.shape[:dim], 1, *x.shape[dim + 1 :]), x)
    out = np.take_along_axis(x, local, axis=dim)
    zero = np.zeros((), x.dtype) if x.dtype.kind in "ib" else d.const(Fraction(0))
    return np.where(inside, out, zero)


def _along_dims(x: Layout, idx: Layout, dim: int) -> None:
    for i, (a, b) in enumerate(zip(x.dims, idx.dims, strict=True)):
        if i != dim and a != b:
            name = next(iter((*bound(a), *bound(b))), None)
            raise Refused(f"values and index are split differently at dim {i}", name, 1)


def _take_along_place(op: Op, given: Operands) -> list[Placed]:
    x, idx = given.layouts
    dim = given.number("dim")
    _no_fold(op, idx, 1)
    _along_dims(x, idx, dim)
    name = window(x.dims[dim], given.attr("offset"))
    layout = _combine(x, [name], idx.dims)
    return [Placed((layout,), (("dim", dim), ("offset", 0)))]


take_along = register(
    Op(
        "take_along",
        "index",
        "... v ..., ... i ... -> ... i ...",
        _take_along,
        _along_types,
        _take_along_place,
        linear=(frozenset({0}),),
        attrs={"dim": REQUIRED, "offset": 0},
        flops=lambda types, results, _: 0,
        doc="The entry of each line along `dim` that an index names (gather).",
        traits=LOOKS,
    )
)


def _put_along_types(site: Site) -> tuple[TensorType, ...]:
    g, idx = site.types
    if g.shape != idx.shape or idx.is_float:
        raise site.fail("values and index must have one shape")
    dim: int = site.attrs["dim"]
    if not 0 <= dim < len(g.shape) or g.dtype in ("bool", "u8"):
        raise site.fail(f"adds numbers along dim {dim}, bool and u8 apart")
    return (TensorType((*g.shape[:dim], site.attrs["size"], *g.shape[dim + 1 :]), g.dtype),)


def _put_along(d: Domain, g: Array, idx: Array, dim: int, size: int, offset: int) -> Array:
    local, inside = _window(idx, size, offset)
    out = _zeros(d, (*g.shape[:dim], size, *g.shape[dim + 1 :]), g)
    moved, values = np.moveaxis(out, dim, -1), np.moveaxis(g, dim, -1)
    where, ok = np.moveaxis(local, dim, -1), np.moveaxis(inside, dim, -1)
    for line in np.ndindex(*values.shape):
        if ok[line]:
            at = (*line[:-1], int(where[line]))
            moved[(*at, ...)] = d.add(moved[(*at, ...)], values[(*line, ...)])
    return out


def _put_along_place(op: Op, given: Operands) -> list[Placed]:
    from verifier.kernel.layout import Atom, normal

    g, idx = given.layouts
    dim = given.number("dim")
    _no_fold(op, idx, 1)
    _along_dims(g, idx, dim)
    along = (*bound(idx.dims[dim]), *bound(g.dims[dim]))
    if along:
        raise Refused(f"the index is split along dim {dim}", along[0], 1)
    total, name = _windowed_size(op, given, g.mentioned)[0]
    if name and name in g.mentioned | idx.mentioned:
        raise Refused(f"lines are split over {name}, and so are the values", name, 0)
    for axis, fold in g.partial:
        if fold != "sum":
            raise Refused(f"spreads a pending {fold} over {axis}", axis, 0)
    atoms = [Atom(given.mesh[name], name)] if name else []
    layout = g.with_dim(dim, normal([*atoms, Atom(given.number("size"))]))
    return [Placed((layout,), (("dim", dim), ("offset", 0), ("size", total)))]


put_along = register(
    Op(
        "put_along",
        "index",
        "... i ..., ... i ... -> ... v ...",
        _put_along,
        _put_along_types,
        _put_along_place,
        linear=(frozenset({0}),),
        attrs={"dim": REQUIRED, "size": REQUIRED, "offset": 0},
        flops=lambda types, results, _: types[0].size,
        doc="Zeros, with each value added where its index says: the adjoint of `take_along`.",
        traits=Traits(keeps=0, index=1),
    )
)


@take.vjp
def _take_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    x, idx = ins
    dim: int = attrs["dim"]
    n = len(b.types[idx].shape)
    rank = len(b.types[cts[0]].shape)
    ct = cts[0]
    if dim:
        order = (*range(dim, dim + n), *range(dim), *range(dim + n, rank))
        ct = b.add("permute", ct, dims=order)
    size = b.types[x].shape[dim]
    out = b.add("index_add", ct, idx, size=size, offset=attrs["offset"])
    if dim:
        rest = len(b.types[out].shape)
        out = b.add("permute", out, dims=(*range(1, dim + 1), 0, *range(dim + 1, rest)))
    return [out, None]


@index_add.vjp
def _index_add_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [b.add("take", cts[0], ins[1], dim=0, offset=attrs["offset"]), None]


@take_along.vjp
def _take_along_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    dim: int = attrs["dim"]
    size = b.types[ins[0]].shape[dim]
    return [
        b.add("put_along", cts[0], ins[1], size=size, dim=attrs["dim"], offset=attrs["offset"]),
        None,
    ]


@put_along.vjp
def _put_along_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [b.add("take_along", cts[0], ins[1], dim=attrs["dim"], offset=attrs["offset"]), None]


def shard_offset(dim: Dim) -> Offset:
    """The offset that makes a windowed lookup right for rows laid out as `dim`."""
    names = list(bound(dim))
    if not names:
        return 0
    if len(names) > 1 or dim[0].mesh_dim is None:
        raise Refused("rows are not split in one block", names[0], 0)
    return Affine.of(0, {names[0]: local_extent(dim)})


def rows(dim: Dim) -> tuple[int, int]:
    """Global and local extent of a dim of rows."""
    return global_extent(dim), local_extent(dim)
