"""Reductions over dims."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Site,
    register,
    traits,
)
from verifier.kernel.program.traits import Bounded, Bounds, Traits, among, counted
from verifier.kernel.program.types import TensorType


def _types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    dims: tuple[int, ...] = tuple(site.attrs["dims"])
    if not all(0 <= d < len(x.shape) for d in dims) or len(set(dims)) != len(dims):
        raise site.fail(f"dims {tuple(dims)} on a tensor of {len(x.shape)} dims")
    if site.attrs["keepdim"]:
        shape = tuple(1 if i in dims else n for i, n in enumerate(x.shape))
    else:
        shape = tuple(n for i, n in enumerate(x.shape) if i not in dims)
    dtype = "i64" if not x.is_float else x.dtype
    if not traits(site.op).adds and any(x.shape[d] == 0 for d in dims):
        raise site.fail("one of no entries")
    return (TensorType(shape, dtype),)


def kept(shape: tuple[int, ...], dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if i in dims else n for i, n in enumerate(shape))


def _sum_bounds(a: Bounded) -> Bounds:
    dims: tuple[int, ...] = a.attrs["dims"]
    return counted(a.args[0], math.prod(a.shapes[0][d] for d in dims))


def reduction(
    name: str,
    fold: str,
    meaning: Callable[[Domain, Array, tuple[int, ...]], Array],
    known: Traits,
    *,
    linear: tuple[frozenset[int], ...] = (),
    doc: str = "",
    checked: str = "",
) -> Op:
    """Declare a reduction over dims, each at least once, that ranks fold with `fold`."""

    def whole(d: Domain, x: Array, dims: tuple[int, ...], keepdim: bool) -> Array:
        out = meaning(d, x, tuple(dims)) if dims else x
        out = out.astype(np.int64) if is_index(x) else out
        return out.reshape(kept(x.shape, dims)) if keepdim else out

    return register(
        Op(
            name,
            "reduce",
            "... [dims] -> ...",
            whole,
            _types,
            linear=linear,
            attrs={"dims": REQUIRED, "keepdim": False},
            flops=lambda types, results, _: types[0].size,
            doc=doc,
            traits=known,
            fold=fold,
            checked=checked,
        )
    )


sum_ = reduction(
    "sum",
    "sum",
    lambda d, x, dims: np.asarray(x.sum(axis=dims)) if is_index(x) else d.sum(x, dims),
    Traits(strict=True, analytic=True, keeps=1, adds=True, bounds=_sum_bounds),
    linear=(frozenset({0}),),
    doc="Sum over `dims`. A split dim leaves a pending sum.",
)
amax = reduction(
    "amax",
    "max",
    lambda d, x, dims: d.amax(x, dims),
    Traits(keeps=1, picks="entry", bounds=among),
    doc="Maximum over `dims`. A split dim leaves a pending max.",
)


@sum_.vjp
def _sum_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    shape = b.types[ins[0]].shape
    ct = b.add("reshape", cts[0], shape=kept(shape, attrs["dims"]))
    return [b.add("expand", ct, shape=shape)]


@amax.vjp
def _amax_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    """Entries that tie for the maximum share the cotangent, as in PyTorch."""
    shape = b.types[ins[0]].shape
    whole, dims = kept(shape, attrs["dims"]), tuple(attrs["dims"])
    top = b.add(
        "cast",
        b.add("eq", ins[0], b.add("reshape", outs[0], shape=whole)),
        dtype=b.types[ins[0]].dtype,
    )
    share = b.add("div", top, b.add("sum", top, dims=dims, keepdim=True))
    return [b.add("mul", b.add("reshape", cts[0], shape=whole), share)]
