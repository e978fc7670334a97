"""Cuts and joins along one dim: what they compute, and their gradients."""

from fractions import Fraction

import numpy as np

from shardproof.verifier.domains.base import Array, Domain, is_index
from shardproof.verifier.kernel.ops import cuts
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import AttrMap
from shardproof.verifier.ops.bounds import among_or_zero
from shardproof.verifier.ops.facets import Names, Pulled, moves


def _slice(d: Domain, x: Array, dim: int, start: int, stop: int, step: int) -> Array:
    return x[(slice(None),) * dim + (slice(start, stop, step),)]


slice_ = moves(cuts.slice_, _slice, "Entries start, start+step, ... below stop of one dim.")


def _concat(d: Domain, *xs: Array, dim: int) -> Array:
    alike = xs if all(is_index(x) for x in xs) else [d.lift(x) for x in xs]
    return np.concatenate(alike, axis=dim)


concat = moves(
    cuts.concat, _concat, "Join operands along one dim. Linear in all operands together."
)


def _pad(d: Domain, x: Array, dim: int, lo: int, hi: int) -> Array:
    def zeros(n: int) -> Array:
        shape = (*x.shape[:dim], n, *x.shape[dim + 1 :])
        return np.zeros(shape, x.dtype) if is_index(x) else d.full(shape, Fraction(0))

    return np.concatenate([zeros(lo), x, zeros(hi)], axis=dim)


pad = moves(
    cuts.pad,
    _pad,
    "Zeros before and after the entries of one dim: the adjoint of a slice.",
    bounds=among_or_zero,
)


def _flip(d: Domain, x: Array, dim: int) -> Array:
    return np.flip(x, axis=dim)


flip = moves(cuts.flip, _flip, "Reverse one dim.", rearranges=True)


@slice_.vjp
def _slice_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
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
def _concat_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    out: list[str | None] = []
    dim: int = attrs["dim"]
    at = 0
    for value in ins:
        n = b.types[value].shape[dim]
        out.append(b.add("slice", cts[0], dim=dim, start=at, stop=at + n, step=1))
        at += n
    return out


@pad.vjp
def _pad_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    dim: int = attrs["dim"]
    lo: int = attrs["lo"]
    n = b.types[ins[0]].shape[dim]
    return [b.add("slice", cts[0], dim=dim, start=lo, stop=lo + n, step=1)]


flip.vjp(lambda b, ins, outs, cts, attrs: [b.add("flip", cts[0], dim=attrs["dim"])])
