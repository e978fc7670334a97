"""Cuts and joins along one dim: slice, concat, pad, flip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.kernel.ops.map import promote
from verifier.kernel.ops.views import MOVES, copy_cost, view
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Site,
    register,
)
from verifier.kernel.program.traits import among_or_zero
from verifier.kernel.program.types import TensorType


def _slice_types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    dim: int = site.attrs["dim"]
    start: int = site.attrs["start"]
    stop: int = site.attrs["stop"]
    step: int = site.attrs["step"]
    if not 0 <= dim < len(x.shape) or not 0 <= start <= stop <= x.shape[dim] or step < 1:
        raise site.fail(f"slice [{start}:{stop}:{step}] of dim {dim}")
    shape = list(x.shape)
    shape[dim] = len(range(start, stop, step))
    return (TensorType(tuple(shape), x.dtype),)


def _slice(d: Domain, x: Array, dim: int, start: int, stop: int, step: int) -> Array:
    return x[(slice(None),) * dim + (slice(start, stop, step),)]


slice_ = view(
    "slice",
    _slice,
    _slice_types,
    {"dim": REQUIRED, "start": REQUIRED, "stop": REQUIRED, "step": 1},
    "Entries start, start+step, ... below stop of one dim.",
    traits=replace(MOVES, strict=False),
)


def _concat_types(site: Site) -> tuple[TensorType, ...]:
    dim: int = site.attrs["dim"]
    first = site.types[0] if site.types else None
    if first is None or not 0 <= dim < len(first.shape):
        raise site.fail(f"concat along dim {dim}")
    for other in site.types:
        same = (*other.shape[:dim], *other.shape[dim + 1 :])
        if same != (*first.shape[:dim], *first.shape[dim + 1 :]) or len(other.shape) != len(
            first.shape
        ):
            raise site.fail(f"operands differ outside dim {dim}")
        if other.kind != first.kind:
            raise site.fail("operands hold numbers of different kinds; cast them first")
    shape = (*first.shape[:dim], sum(t.shape[dim] for t in site.types), *first.shape[dim + 1 :])
    return (TensorType(shape, promote(site, site.types)),)


def _concat(d: Domain, *xs: Array, dim: int) -> Array:
    alike = xs if all(is_index(x) for x in xs) else [d.lift(x) for x in xs]
    return np.concatenate(alike, axis=dim)


concat = register(
    Op(
        "concat",
        "view",
        "*... -> ...",
        _concat,
        _concat_types,
        linear=(),
        attrs={"dim": REQUIRED},
        flops=copy_cost,
        doc="Join operands along one dim. Linear in all operands together.",
        traits=MOVES,
    )
)


def _pad_types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    dim: int = site.attrs["dim"]
    lo: int = site.attrs["lo"]
    hi: int = site.attrs["hi"]
    if not 0 <= dim < len(x.shape) or lo < 0 or hi < 0:
        raise site.fail(f"pad dim {dim} by {lo} and {hi}")
    return (TensorType((*x.shape[:dim], x.shape[dim] + lo + hi, *x.shape[dim + 1 :]), x.dtype),)


def _pad(d: Domain, x: Array, dim: int, lo: int, hi: int) -> Array:
    def zeros(n: int) -> Array:
        shape = (*x.shape[:dim], n, *x.shape[dim + 1 :])
        return np.zeros(shape, x.dtype) if is_index(x) else d.full(shape, Fraction(0))

    return np.concatenate([zeros(lo), x, zeros(hi)], axis=dim)


pad = view(
    "pad",
    _pad,
    _pad_types,
    {"dim": REQUIRED, "lo": REQUIRED, "hi": REQUIRED},
    "Zeros before and after the entries of one dim: the adjoint of a slice.",
    traits=replace(MOVES, keeps=0, bounds=among_or_zero),
)


def _same_types(site: Site) -> tuple[TensorType, ...]:
    if not 0 <= site.attrs["dim"] < len(site.types[0].shape):
        raise site.fail(f"flip of dim {site.attrs['dim']}")
    return (site.types[0],)


def _flip(d: Domain, x: Array, dim: int) -> Array:
    return np.flip(x, axis=dim)


flip = view(
    "flip",
    _flip,
    _same_types,
    {"dim": REQUIRED},
    "Reverse one dim.",
)


@slice_.vjp
def _slice_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    dim: int = attrs["dim"]
    start: int = attrs["start"]
    step: int = attrs["step"]
    ct, extent = cts[0], b.types[ins[0]].shape[dim]
    shape = b.types[ct].shape
    n = shape[dim]
    if step > 1 and n:
        ct = b.add("reshape", ct, shape=(*shape[: dim + 1], 1, *shape[dim + 1 :]))
        ct = b.add("pad", ct, dim=dim + 1, lo=0, hi=step - 1)
        ct = b.add("reshape", ct, shape=(*shape[:dim], n * step, *shape[dim + 1 :]))
        reach = min(n * step, extent - start)
        ct = b.add("slice", ct, dim=dim, start=0, stop=reach, step=1)
        n = reach
    return [b.add("pad", ct, dim=dim, lo=start, hi=extent - start - n)]


@concat.vjp
def _concat_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    out: list[str | None] = []
    dim: int = attrs["dim"]
    at = 0
    for value in ins:
        n = b.types[value].shape[dim]
        out.append(b.add("slice", cts[0], dim=dim, start=at, stop=at + n, step=1))
        at += n
    return out


@pad.vjp
def _pad_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    dim: int = attrs["dim"]
    lo: int = attrs["lo"]
    n = b.types[ins[0]].shape[dim]
    return [b.add("slice", cts[0], dim=dim, start=lo, stop=lo + n, step=1)]


@flip.vjp
def _flip_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [b.add("flip", cts[0], dim=attrs["dim"])]
