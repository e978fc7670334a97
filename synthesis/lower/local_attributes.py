"""Local attributes of an op, given the layouts of its operands: the inverse of its placement rule.

What is found here is only a candidate: the rule itself then says what the local op means.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardproof.verifier.kernel.layout import (
    Atom,
    Dim,
    Layout,
    bound,
    global_extent,
    local_extent,
    normal,
    split_leading,
    whole,
)
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.ops.classes import LOOKUPS, SCATTERS, SPREADING
from shardproof.verifier.provers.placement.indexing import shard_offset


def without(layout: Layout, names: Collection[str]) -> Layout:
    """The layout with some mesh dims replicated."""
    dims = tuple(
        normal(Atom(a.size) if a.mesh_dim in names else a for a in dim) for dim in layout.dims
    )
    return Layout(dims, tuple(p for p in layout.partial if p[0] not in names))


def split(layout: Layout, name: str, size: int, dim: int) -> Layout | None:
    """The layout with `dim` split over one more mesh dim; None where it does not divide."""
    chunk = split_leading(layout.dims[dim], size, name)
    return None if chunk is None else layout.with_dim(dim, chunk)


def beside(shape: tuple[int, ...], others: Sequence[Layout], rank: int) -> Layout:
    """The layout of a tensor made from nothing that goes with the other operands, aligned at the
    last of `rank` dims."""
    dims = [whole(n) for n in shape]
    for layout in others:
        for at, n in enumerate(shape):
            other = at + (rank - len(shape)) - (rank - len(layout.dims))
            if other < 0 or n == 1 or not bound(layout.dims[other]):
                continue
            if global_extent(layout.dims[other]) == n:
                dims[at] = layout.dims[other]
    return Layout(tuple(dims))


def match(mine: Layout, other: Layout) -> Layout | None:
    """`mine` laid out as `other` where their whole extents agree, aligned at the last dim.

    None where that changes nothing or binds a mesh dim twice.
    """
    rank = max(len(mine.dims), len(other.dims))
    dims = list(mine.dims)
    whole_mine, whole_other = mine.global_shape, other.global_shape
    for at in range(rank):
        a, b = at - (rank - len(dims)), at - (rank - len(other.dims))
        if a >= 0 and b >= 0 and whole_mine[a] == whole_other[b]:
            dims[a] = other.dims[b]
        elif a >= 0 and bound(dims[a]) and b >= 0:
            return None
    used = [n for d in dims for n in bound(d)]
    if len(set(used)) != len(used):
        return None
    partial = tuple(p for p in mine.partial if p[0] not in used)
    made = Layout(tuple(dims), partial)
    return made if made != mine else None


def aligned(mine: Layout, at: int, dim: Dim) -> Layout | None:
    """`mine` with one dim split as a dim of another operand is."""
    rest = without(mine, bound(dim))
    out = rest.with_dim(at, dim)
    used = [n for d in out.dims for n in bound(d)]
    return out if len(set(used)) == len(used) and out.global_shape == mine.global_shape else None


@dataclass(frozen=True, slots=True)
class Reading:
    """What the local op has to mean: the whole shape, and a layout where one is wanted."""

    shape: tuple[int, ...]
    result: Layout | None = None
    rows: Layout | None = None


def regroup_whole(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """The layout of a whole reshape; None where it would cut through a split."""
    atoms = list(normal(a for d in layout.dims for a in d))
    dims: list[Dim] = []
    for extent in shape:
        need, taken = extent, list[Atom]()
        while need > 1:
            if not atoms:
                return None
            atom = atoms.pop(0)
            if atom.mesh_dim is not None:
                if need % atom.size:
                    return None
                taken.append(atom)
                need //= atom.size
                continue
            take = math.gcd(need, atom.size)
            if take not in (need, atom.size):
                return None
            taken.append(Atom(take))
            need //= take
            if take != atom.size:
                atoms.insert(0, Atom(atom.size // take))
        dims.append(normal(taken))
    return Layout(tuple(dims), layout.partial) if not atoms else None


def source_layout(node: Node, layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """The layout of the operand (of whole shape `shape`) that gives a `TRANSPARENT` op this one."""
    attrs: dict[str, Any] = node.attrs
    if node.op == "reshape":
        return regroup_whole(layout, shape)
    if node.op == "permute":
        dims: list[Dim] = [()] * len(shape)
        for at, d in enumerate(attrs["dims"]):
            dims[d] = layout.dims[at]
        return Layout(tuple(dims), layout.partial)
    if lookup(node.op).kind == "map":
        return layout if attrs.get("dtype") != "bool" else None
    dim: int | None = attrs.get("dim")
    if dim is None or bound(layout.dims[dim]):
        return None
    return layout.with_dim(dim, whole(shape[dim]))


def _dim_of(layout: Layout, attrs: Mapping[str, Any]) -> Dim:
    """The dim that an op works on, the first one by default."""
    at: int = attrs.get("dim", 0)
    return layout.dims[at]


def _scaled(dim: Dim, *values: int) -> tuple[int, ...] | None:
    """Whole positions along a dim whose leading atom is free, as local positions."""
    if not bound(dim):
        return values
    rest = dim[1:] if dim[0].mesh_dim is None else dim
    total, local = global_extent(rest), local_extent(rest)
    if not total or any(v % total for v in values):
        return None
    return tuple(v // total * local for v in values)


def localize(node: Node, layouts: tuple[Layout, ...], want: Reading) -> Iterator[dict[str, Any]]:
    """Local attributes to try, likeliest first."""
    attrs: dict[str, Any] = dict(node.attrs)
    op = node.op
    if op == "reshape":
        layout = regroup_whole(layouts[0], want.shape)
        if layout is not None:
            yield {**attrs, "shape": layout.local_shape}
    elif op in SPREADING:
        assert want.result is not None
        attrs["shape"] = want.result.local_shape
        if op == "iota":
            dim = _dim_of(want.result, attrs)
            if attrs.get("offset", 0) == 0 or not bound(dim):
                try:
                    attrs["offset"] = shard_offset(dim) if bound(dim) else attrs.get("offset", 0)
                except Refused:
                    return
        yield attrs
    elif op == "slice":
        dim = _dim_of(layouts[0], attrs)
        moved = _scaled(dim, attrs["start"], attrs["stop"])
        if moved is not None:
            yield {**attrs, "start": moved[0], "stop": moved[1]}
    elif op == "pad":
        dim = _dim_of(layouts[0], attrs)
        moved = _scaled(dim, attrs["lo"], attrs["hi"])
        if moved is not None:
            yield {**attrs, "lo": moved[0], "hi": moved[1]}
    elif op in LOOKUPS:
        try:
            yield {**attrs, "offset": shard_offset(_dim_of(layouts[0], attrs))}
        except Refused:
            return
    elif op in SCATTERS:
        if want.rows is not None:
            rows = want.rows.dims[0]
            taken = {n for layout in layouts for n in layout.mentioned}
            if not taken & set(bound(rows)):
                yield {**attrs, "size": local_extent(rows), "offset": shard_offset(rows)}
        yield attrs
    else:
        yield attrs
