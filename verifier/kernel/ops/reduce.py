"""Reductions over dims."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.kernel.layout import Dim, Layout, bound
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
    if site.op == "amax" and any(x.shape[d] == 0 for d in dims):
        raise site.fail("the maximum of no entries")
    return (TensorType(shape, dtype),)


def _place(fold: str) -> Callable[[Op, Operands], list[Placed]]:
    def rule(op: Op, given: Operands) -> list[Placed]:
        (x,) = given.layouts
        dims = given.attr("dims")
        partial = dict(x.partial)
        for name, pending in x.partial:
            if pending != fold:
                raise Refused(
                    f"{op.name} of a value that waits for a {pending} over {name}", name, 0
                )
        kept: list[Dim] = []
        for i, dim in enumerate(x.dims):
            if i in dims:
                for name in bound(dim):
                    partial[name] = fold
                if given.attr("keepdim"):
                    kept.append(())
            else:
                kept.append(dim)
        return [Placed((Layout(tuple(kept)).with_partial(partial.items()),), given.attrs)]

    return rule


def _sum(d: Domain, x: Array, dims: tuple[int, ...], keepdim: bool) -> Array:
    if is_index(x):
        return x.sum(axis=tuple(dims), keepdims=keepdim)
    out = d.sum(x, tuple(dims)) if dims else x
    return out.reshape(_kept(x.shape, dims)) if keepdim else out


def _amax(d: Domain, x: Array, dims: tuple[int, ...], keepdim: bool) -> Array:
    out = d.amax(x, tuple(dims)) if dims else x
    out = out.astype(np.int64) if is_index(x) else out
    return out.reshape(_kept(x.shape, dims)) if keepdim else out


def _kept(shape: tuple[int, ...], dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if i in dims else n for i, n in enumerate(shape))


def _sum_bounds(a: Bounded) -> Bounds:
    dims: tuple[int, ...] = a.attrs["dims"]
    return counted(a.args[0], math.prod(a.shapes[0][d] for d in dims))


_ATTRS = {"dims": REQUIRED, "keepdim": False}

sum_ = register(
    Op(
        "sum",
        "reduce",
        "... [dims] -> ...",
        _sum,
        _types,
        _place("sum"),
        linear=(frozenset({0}),),
        attrs=_ATTRS,
        flops=lambda types, results, _: types[0].size,
        doc="Sum over `dims`. A split dim leaves a pending sum.",
        traits=Traits(strict=True, analytic=True, keeps=1, adds=True, bounds=_sum_bounds),
    )
)
amax = register(
    Op(
        "amax",
        "reduce",
        "... [dims] -> ...",
        _amax,
        _types,
        _place("max"),
        attrs=_ATTRS,
        flops=lambda types, results, _: types[0].size,
        doc="Maximum over `dims`. A split dim leaves a pending max.",
        traits=Traits(keeps=1, picks="entry", bounds=among),
    )
)


@sum_.vjp
def _sum_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    shape = b.types[ins[0]].shape
    kept = b.add("reshape", cts[0], shape=_kept(shape, attrs["dims"]))
    return [b.add("expand", kept, shape=shape)]


@amax.vjp
def _amax_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    """Entries that tie for the maximum share the cotangent, as in PyTorch."""
    shape = b.types[ins[0]].shape
    kept, dims = _kept(shape, attrs["dims"]), tuple(attrs["dims"])
    top = b.add(
        "cast",
        b.add("eq", ins[0], b.add("reshape", outs[0], shape=kept)),
        dtype=b.types[ins[0]].dtype,
    )
    share = b.add("div", top, b.add("sum", top, dims=dims, keepdim=True))
    return [b.add("mul", b.add("reshape", cts[0], shape=kept), share)]
