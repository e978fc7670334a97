"""Views and copies: ops that only move elements. Their relations are maps of atoms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.ir.builder import Builder
from verifier.ir.types import Mesh, TensorType
from verifier.layout import Atom, Dim, Layout, bound, global_extent, local_extent, normal, whole
from verifier.ops.registry import REQUIRED, AttrMap, Op, Operands, Placed, Refused, Site, register


def _only_sum(op: Op, layout: Layout) -> None:
    for name, fold in layout.partial:
        if fold != "sum":
            raise Refused(f"{op.name} inserts zeros into a pending {fold} over {name}", name, 0)


def regroup(layout: Layout, shape: tuple[int, ...]) -> Iterator[tuple[Dim, ...]]:
    """Every way to read the atoms of `layout` as dims of local extents `shape`, likeliest first.

    Bound atoms between two result dims may belong to either; all readings are true.
    """
    atoms = normal(a for d in layout.dims for a in d)

    def step(
        at: int,
        rest: Atom | None,
        dim: int,
        need: int,
        current: tuple[Atom, ...],
        done: tuple[Dim, ...],
    ) -> Iterator[tuple[Dim, ...]]:
        atom = rest or (atoms[at] if at < len(atoms) else None)
        if need == 1 and (dim + 1 < len(shape)):
            yield from step(at, rest, dim + 1, shape[dim + 1], (), (*done, normal(current)))
        if atom is None:
            if need == 1 and dim + 1 == len(shape):
                yield (*done, normal(current))
            return
        if atom.mesh_dim is not None:
            yield from step(at + 1, None, dim, need, (*current, atom), done)
        elif need > 1:
            take = math.gcd(need, atom.size)
            if take != need and take != atom.size:
                return
            left = Atom(atom.size // take) if take != atom.size else None
            yield from step(
                at if left else at + 1, left, dim, need // take, (*current, Atom(take)), done
            )

    if not shape:
        if all(a.mesh_dim is None for a in atoms):
            yield ()
        return
    yield from step(0, None, 0, shape[0], (), ())


def _reshape_types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    shape = tuple(site.attrs["shape"])
    if math.prod(shape) != x.size or min(shape, default=0) < 0:
        raise site.fail(f"{x.size} elements do not fill shape {list(shape)}")
    return (TensorType(shape, x.dtype),)


def _reshape_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    out: dict[Layout, Placed] = {}
    for dims in regroup(x, given.numbers("shape")):
        layout = Layout(dims, x.partial)
        out.setdefault(layout, Placed((layout,), (("shape", layout.global_shape),)))
        if len(out) == 12:
            break
    if not out:
        raise Refused(
            "the reshape cuts through a split dim", next(iter(sorted(x.sharded)), None), 0
        )
    return list(out.values())


def _copy_cost(types: Sequence[TensorType], results: Sequence[TensorType], attrs: AttrMap) -> int:
    return 0


def _view(
    name: str,
    meaning: Callable[..., Any],
    types: Callable[[Site], tuple[TensorType, ...]],
    place: Callable[[Op, Operands], list[Placed]],
    attrs: dict[str, Any],
    doc: str,
) -> Op:
    return register(
        Op(
            name,
            "view",
            "... -> ...",
            meaning,
            types,
            place,
            linear=(frozenset({0}),),
            attrs=attrs,
            flops=_copy_cost,
            doc=doc,
        )
    )


def _reshape(d: Domain, x: Array, shape: tuple[int, ...]) -> Array:
    return x.reshape(shape)


reshape = _view(
    "reshape",
    _reshape,
    _reshape_types,
    _reshape_place,
    {"shape": REQUIRED},
    "The same elements in row-major order under another shape.",
)


def _permute_types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    dims: tuple[int, ...] = tuple(site.attrs["dims"])
    if sorted(dims) != list(range(len(x.shape))):
        raise site.fail(f"dims {dims} do not permute {len(x.shape)} dims")
    return (TensorType(tuple(x.shape[d] for d in dims), x.dtype),)


def _permute_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    return [
        Placed((Layout(tuple(x.dims[d] for d in given.numbers("dims")), x.partial),), given.attrs)
    ]


def _permute(d: Domain, x: Array, dims: tuple[int, ...]) -> Array:
    return x.transpose(dims)


permute = _view(
    "permute",
    _permute,
    _permute_types,
    _permute_place,
    {"dims": REQUIRED},
    "Reorder the dims.",
)


def _expand_types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    shape = tuple(site.attrs["shape"])
    extra = len(shape) - len(x.shape)
    if (
        extra < 0
        or min(shape, default=0) < 0
        or any(n not in (1, shape[extra + i]) for i, n in enumerate(x.shape))
    ):
        raise site.fail(f"cannot expand to {list(shape)}")
    return (TensorType(shape, x.dtype),)


def spreads(
    extents: Sequence[int | None], mesh: Mesh, used: frozenset[str]
) -> Iterator[dict[int, Dim]]:
    """Every reading of dims along which all entries are equal: whole, or split over mesh dims.

    `extents` holds the local extent of each such dim, None for the others. Fewest splits first.
    """
    free = [name for name in mesh.names if name not in used and mesh[name] > 1]
    places = [None, *(i for i, n in enumerate(extents) if n is not None)]
    choices = sorted(product(places, repeat=len(free)), key=lambda c: sum(p is not None for p in c))
    for choice in choices:
        dims: dict[int, Dim] = {}
        for i, n in enumerate(extents):
            if n is not None:
                atoms = [Atom(mesh[a], a) for a, p in zip(free, choice, strict=True) if p == i]
                dims[i] = normal([*atoms, Atom(n)])
        yield dims


def _expand_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    shape = given.numbers("shape")
    extra = len(shape) - len(x.dims)
    none: Dim = ()
    dims: list[Dim] = [*([none] * extra), *x.dims]
    extents: list[int | None] = []
    for i, (dim, n) in enumerate(zip(dims, shape, strict=True)):
        if dim and local_extent(dim) != n:
            raise Refused(
                f"expands dim {i}, which is split so that one entry is left on each rank",
                bound(dim)[0],
                0,
            )
        extents.append(None if dim else n)
    out: list[Placed] = []
    for chosen in spreads(extents, given.mesh, x.mentioned):
        full = tuple(chosen.get(i, dim) for i, dim in enumerate(dims))
        layout = Layout(full, x.partial)
        out.append(Placed((layout,), (("shape", layout.global_shape),)))
    return out


def _expand(d: Domain, x: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(x, shape)


expand = _view(
    "expand",
    _expand,
    _expand_types,
    _expand_place,
    {"shape": REQUIRED},
    "Repeat dims of extent 1 (and new leading dims) up to a shape.",
)


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


slice_ = _view(
    "slice",
    _slice,
    _slice_types,
    _slice_place,
    {"dim": REQUIRED, "start": REQUIRED, "stop": REQUIRED, "step": 1},
    "Entries start, start+step, ... below stop of one dim.",
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
    return (TensorType(shape, first.dtype),)


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
        flops=_copy_cost,
        doc="Join operands along one dim. Linear in all operands together.",
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


pad = _view(
    "pad",
    _pad,
    _pad_types,
    _pad_place,
    {"dim": REQUIRED, "lo": REQUIRED, "hi": REQUIRED},
    "Zeros before and after the entries of one dim: the adjoint of a slice.",
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


flip = _view(
    "flip",
    _flip,
    _same_types,
    _flip_place,
    {"dim": REQUIRED},
    "Reverse one dim.",
)


@reshape.vjp
def _reshape_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [b.add("reshape", cts[0], shape=b.types[ins[0]].shape)]


@permute.vjp
def _permute_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    dims = attrs["dims"]
    return [b.add("permute", cts[0], dims=tuple(dims.index(i) for i in range(len(dims))))]


@expand.vjp
def _expand_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    from verifier.ops.map import reduce_to

    return [reduce_to(b, cts[0], ins[0])]


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
