"""Gathers and scatters by index values: what they compute, and their gradients."""

from fractions import Fraction

import numpy as np

from shardproof.verifier.domains.base import Array, Domain, is_index
from shardproof.verifier.kernel.ops import indexing
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import AttrMap
from shardproof.verifier.ops.bounds import among_or_zero
from shardproof.verifier.ops.facets import Names, Pulled, describe


def _zeros(d: Domain, shape: tuple[int, ...], like: Array) -> Array:
    """Zeros to add entries of `like` to."""
    return np.zeros(shape, np.int64) if is_index(like) else d.full(shape, Fraction(0))


def _window(index: Array, extent: int, offset: int) -> tuple[Array, Array]:
    local = index - offset
    inside = (local >= 0) & (local < extent)
    return np.where(inside, local, 0), inside


def _take(d: Domain, x: Array, idx: Array, dim: int, offset: int) -> Array:
    local, inside = _window(idx, x.shape[dim], offset)
    if x.shape[dim] == 0:
        x = _zeros(d, (*x.shape[:dim], 1, *x.shape[dim + 1 :]), x)
    out = np.take(x, local, axis=dim)
    mask = inside.reshape((1,) * dim + idx.shape + (1,) * (x.ndim - dim - 1))
    zero = np.zeros((), x.dtype) if x.dtype.kind in "ib" else d.const(Fraction(0))
    return np.where(mask, out, zero)


take = describe(
    indexing.take,
    _take,
    doc="Rows of `x` along `dim` at an index (embedding). Rows outside the window are zero.",
    bounds=among_or_zero,
)


def _index_add(d: Domain, g: Array, idx: Array, size: int, offset: int) -> Array:
    local, inside = _window(idx, size, offset)
    rest = g.shape[idx.ndim :]
    out = _zeros(d, (size, *rest), g)
    flat = g.reshape((idx.size, *rest))
    for row, (value, ok) in enumerate(zip(local.reshape(-1), inside.reshape(-1), strict=True)):
        if ok:
            out[value, ...] = d.add(out[value, ...], flat[row, ...])
    return out


index_add = describe(
    indexing.index_add,
    _index_add,
    doc="Add each row of values into the row that its index names: the adjoint of `take`.",
    adds=True,
)


def _take_along(d: Domain, x: Array, idx: Array, dim: int, offset: int) -> Array:
    local, inside = _window(idx, x.shape[dim], offset)
    if x.shape[dim] == 0:
        x = _zeros(d, (*x.shape[:dim], 1, *x.shape[dim + 1 :]), x)
    out = np.take_along_axis(x, local, axis=dim)
    zero = np.zeros((), x.dtype) if x.dtype.kind in "ib" else d.const(Fraction(0))
    return np.where(inside, out, zero)


take_along = describe(
    indexing.take_along,
    _take_along,
    doc="The entry of each line along `dim` that an index names (gather).",
    bounds=among_or_zero,
)


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


put_along = describe(
    indexing.put_along,
    _put_along,
    doc="Zeros, with each value added where its index says: the adjoint of `take_along`.",
    adds=True,
)


@take.vjp
def _take_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
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
def _index_add_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    return [b.add("take", cts[0], ins[1], dim=0, offset=attrs["offset"]), None]


@take_along.vjp
def _take_along_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    dim, offset = attrs["dim"], attrs["offset"]
    size = b.types[ins[0]].shape[int(dim)]
    return [b.add("put_along", cts[0], ins[1], size=size, dim=dim, offset=offset), None]


@put_along.vjp
def _put_along_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    return [b.add("take_along", cts[0], ins[1], dim=attrs["dim"], offset=attrs["offset"]), None]
