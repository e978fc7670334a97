"""Cuts and joins along one dim: slice, concat, pad, flip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.kernel.layout import Atom, Layout, bound, global_extent, local_extent, normal, whole
from verifier.kernel.ops.map import promote
from verifier.kernel.ops.views import MOVES, copy_cost, view
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
from verifier.kernel.program.traits import among_or_zero
from verifier.kernel.program.types import TensorType


def _only_sum(op: Op, layout: Layout) -> None:
    for name, fold in layout.partial:
        if fold != "sum":
            raise Refused(f"{op.name} inserts zeros into a pending {fold} over {name}", name, 0)


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


def _slice_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    index, start, stop, step = (given.number(k) for k in ("dim", "start", "stop", "step"))
    dim = x.dims[index]
    if not bound(dim):
        kept = whole(len(range(start, stop, step)))
        return [Placed((x.with_dim(index, kept),), given.attrs)]
    inner = local_extent(dim)
    if (start, stop, step) == (0, inner, 1):
        return [
            Placed((x,), (("dim", index), ("start", 0), ("stop", global_extent(dim)), ("step", 1)))
        ]
    if dim[0].mesh_dim is None and step == 1:
        rest = dim[1:]
        local, total = local_extent(rest), global_extent(rest)
        if local and start % local == 0 and stop % local == 0:
            first, last = start // local, stop // local
            layout = x.with_dim(index, (Atom(last - first), *rest))
            attrs = (("dim", index), ("start", first * total), ("stop", last * total), ("step", 1))
            return [Placed((layout,), attrs, facts=(f"{local} divides {start} and {stop}",))]
    raise Refused(f"slices dim {index}, which is split over {bound(dim)[0]}", bound(dim)[0], 0)


def _slice(d: Domain, x: Array, dim: int, start: int, stop: int, step: int) -> Array:
    return x[(slice(None),) * dim + (slice(start, stop, step),)]


slice_ = view(
    "slice",
    _slice,
    _slice_types,
    _slice_place,
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


def _concat_place(op: Op, given: Operands) -> list[Placed]:
    index = given.number("dim")
    first = given.layouts[0]
    for i, layout in enumerate(given.layouts):
        if (
            layout.dims[:index] != first.dims[:index]
            or layout.dims[index + 1 :] != first.dims[index + 1 :]
        ):
            name = next(iter(sorted(layout.mentioned ^ first.mentioned)), None)
            raise Refused(f"operands 0 and {i} are split differently", name, i)
    holders = [i for i in range(len(given.layouts)) if i not in given.zeros] or [0]
    partial = given.layouts[holders[0]].partial
    for i in holders:
        layout = given.layouts[i]
        if layout.partial != partial:
            name = next(iter(sorted(layout.pending ^ {n for n, _ in partial})), None)
            raise Refused(
                f"joins a value that waits for a sum over {name} to one that does not", name, i
            )
    for name, fold in partial:
        if fold != "sum" and given.zeros:
            raise Refused(f"joins zeros to a pending {fold} over {name}", name, 0)
        if any(name in layout.sharded for layout in given.layouts):
            raise Refused(f"an operand is split over {name}, over which a sum is pending", name, 0)
    dims = [layout.dims[index] for layout in given.layouts]
    if not any(bound(d) for d in dims):
        joined = whole(sum(local_extent(d) for d in dims))
    elif all(d == dims[0] for d in dims):
        joined = normal((Atom(len(dims)), *dims[0]))
    else:
        name = next(n for d in dims for n in bound(d))
        raise Refused(f"joins unequal pieces of dim {index}, which is split over {name}", name, 0)
    layout = Layout(first.dims, partial).with_dim(index, joined)
    return [Placed((layout,), given.attrs)]


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
        _concat_place,
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


def _pad_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    _only_sum(op, x)
    index, lo, hi = given.number("dim"), given.number("lo"), given.number("hi")
    dim = x.dims[index]
    if not bound(dim):
        return [Placed((x.with_dim(index, whole(local_extent(dim) + lo + hi)),), given.attrs)]
    rest, count = (dim, 1) if dim[0].mesh_dim else (dim[1:], dim[0].size)
    local, total = local_extent(rest), global_extent(rest)
    if local and lo % local == 0 and hi % local == 0:
        layout = x.with_dim(index, (Atom(count + (lo + hi) // local), *rest))
        attrs = (("dim", index), ("hi", hi // local * total), ("lo", lo // local * total))
        return [Placed((layout,), attrs, facts=(f"{local} divides {lo} and {hi}",))]
    raise Refused(f"pads dim {index}, which is split over {bound(dim)[0]}", bound(dim)[0], 0)


pad = view(
    "pad",
    _pad,
    _pad_types,
    _pad_place,
    {"dim": REQUIRED, "lo": REQUIRED, "hi": REQUIRED},
    "Zeros before and after the entries of one dim: the adjoint of a slice.",
    traits=replace(MOVES, keeps=0, bounds=among_or_zero),
)


def _same_types(site: Site) -> tuple[TensorType, ...]:
    if not 0 <= site.attrs["dim"] < len(site.types[0].shape):
        raise site.fail(f"flip of dim {site.attrs['dim']}")
    return (site.types[0],)


def _flip_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    dim = x.dims[given.number("dim")]
    if bound(dim):
        raise Refused(f"reverses a dim that is split over {bound(dim)[0]}", bound(dim)[0], 0)
    return [Placed((x,), given.attrs)]


def _flip(d: Domain, x: Array, dim: int) -> Array:
    return np.flip(x, axis=dim)


flip = view(
    "flip",
    _flip,
    _same_types,
    _flip_place,
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
