"""Reductions over dims and products: what they compute, and their gradients."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardproof.verifier.domains.base import Array, Domain, is_index
from shardproof.verifier.kernel.ops import reduce
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import AttrMap, Op
from shardproof.verifier.ops.bounds import Bounded, Bounds, among, counted, times
from shardproof.verifier.ops.facets import Facets, Names, Pulled, describe


def kept(shape: tuple[int, ...], dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if i in dims else n for i, n in enumerate(shape))


def _sum_bounds(a: Bounded) -> Bounds:
    dims: tuple[int, ...] = a.attrs["dims"]
    return counted(a.args[0], math.prod(a.shapes[0][d] for d in dims))


def reduction(
    op: Op, meaning: Callable[[Domain, Array, tuple[int, ...]], Array], doc: str, **known: Any
) -> Facets:
    """Describe a reduction, by what it computes over dims that are named, each at least once."""

    def whole(d: Domain, x: Array, dims: tuple[int, ...], keepdim: bool) -> Array:
        out = meaning(d, x, tuple(dims)) if dims else x
        out = out.astype(np.int64) if is_index(x) else out
        return out.reshape(kept(x.shape, dims)) if keepdim else out

    return describe(op, whole, doc, **known)


sum_ = reduction(
    reduce.sum_,
    lambda d, x, dims: np.asarray(x.sum(axis=dims)) if is_index(x) else d.sum(x, dims),
    "Sum over `dims`. A split dim leaves a pending sum.",
    fold="sum",
    analytic=True,
    adds=True,
    bounds=_sum_bounds,
)
amax = reduction(
    reduce.amax,
    lambda d, x, dims: d.amax(x, dims),
    "Maximum over `dims`. A split dim leaves a pending max.",
    fold="max",
    picks="entry",
    bounds=among,
)


@sum_.vjp
def _sum_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    shape = b.types[ins[0]].shape
    ct = b.add("reshape", cts[0], shape=kept(shape, attrs["dims"]))
    return [b.add("expand", ct, shape=shape)]


@amax.vjp
def _amax_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
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


def _matmul(d: Domain, a: Array, b: Array) -> Array:
    return d.matmul(d.lift(a), d.lift(b))


def _product_bounds(a: Bounded) -> Bounds:
    return counted(times(*a.args), a.shapes[0][-1])


def _product(op: Op, doc: str) -> Facets:
    aten = (f"{op.name}.default",)
    return describe(op, _matmul, doc, bounds=_product_bounds, aten=aten, analytic=True, adds=True)


mm = _product(reduce.mm, "Matrix product. Splitting `k` leaves a pending sum.")
bmm = _product(reduce.bmm, "Batched matrix product.")


def _product_vjp(dims: tuple[int, ...]) -> Callable[..., Any]:
    def rule(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
        name = "mm" if len(dims) == 2 else "bmm"
        x, w = ins
        return [
            b.add(name, cts[0], b.add("permute", w, dims=dims)),
            b.add(name, b.add("permute", x, dims=dims), cts[0]),
        ]

    return rule


mm.vjp(_product_vjp((1, 0)))
bmm.vjp(_product_vjp((0, 2, 1)))
