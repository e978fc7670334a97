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
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Site,
    register,
)
from verifier.kernel.program.traits import Traits, among_or_zero
from verifier.kernel.program.types import TensorType


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


LOOKS = Traits(keeps=0, index=1, bounds=among_or_zero)
"""Of ops that read entries at indices, and 0 beside the window."""

take = register(
    Op(
        "take",
        "index",
        "... v ..., i -> ... i ...",
        _take,
        _take_types,
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


index_add = register(
    Op(
        "index_add",
        "index",
        "i ..., i -> v ...",
        _index_add,
        _index_add_types,
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


take_along = register(
    Op(
        "take_along",
        "index",
        "... v ..., ... i ... -> ... i ...",
        _take_along,
        _along_types,
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


put_along = register(
    Op(
        "put_along",
        "index",
        "... i ..., ... i ... -> ... v ...",
        _put_along,
        _put_along_types,
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
