"""Collectives over one or more mesh dims. On one device they are the identity.

`meaning` takes the values of the ranks of one group, in group order, and returns theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce as fold_left
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.errors import IRError
from verifier.kernel.program.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Site,
    register,
)
from verifier.kernel.program.traits import Traits, among, among_or_zero, reduced
from verifier.kernel.program.types import Attr, TensorType, mesh_dims

REDUCE = ("sum", "avg", "max", "min")


def group_size(site: Site) -> int:
    size = 1
    names = mesh_dims(site.attrs["mesh_dim"])
    if len(set(names)) != len(names):
        raise site.fail(f"a mesh dim is named twice in {', '.join(names)}")
    for name in names:
        if name not in site.mesh:
            raise site.fail(f"the mesh ({site.mesh or 'none'}) has no dim {name!r}")
        size *= site.mesh[name]
    return size


def _dim(site: Site, key: str) -> int:
    dim = site.attrs[key]
    if not 0 <= dim < len(site.types[0].shape):
        raise site.fail(f"{key}={dim} of a tensor of {len(site.types[0].shape)} dims")
    return dim


def _resized(type: TensorType, dim: int, extent: int) -> TensorType:
    return TensorType((*type.shape[:dim], extent, *type.shape[dim + 1 :]), type.dtype)


def check_reduce(site: Site) -> None:
    """Raises ShapeError where values of this kind are not reduced so."""
    if site.attrs.get("reduce", "sum") not in REDUCE:
        raise site.fail(f"reduce={site.attrs['reduce']!r}; expected one of {', '.join(REDUCE)}")
    how, x = site.attrs.get("reduce"), site.types[0]
    if how == "sum" and x.dtype == "u8":
        raise site.fail("u8 wraps at 256; cast to i64 first")
    if (how == "sum" and x.kind == "bool") or (how == "avg" and x.kind != "float"):
        raise site.fail(f"no {how} of {x.dtype} values; cast them first")


def _reduced(d: Domain, parts: Sequence[Array], how: str) -> Array:
    pick: dict[str, Callable[[Array, Array], Array]] = {
        "sum": d.add,
        "avg": d.add,
        "max": d.maximum,
        "min": d.minimum,
    }
    out = fold_left(pick[how], parts)
    return d.mul(d.lift(out), d.const(Fraction(1, len(parts)))) if how == "avg" else out


def _same(site: Site) -> tuple[TensorType, ...]:
    size = group_size(site)
    check_reduce(site)
    if not 0 <= site.attrs.get("index", 0) < size:
        raise site.fail(f"coordinate {site.attrs['index']} of a mesh dim of size {size}")
    if "index" in site.attrs and len(mesh_dims(site.attrs["mesh_dim"])) > 1:
        raise site.fail("one coordinate of several mesh dims")
    return (site.types[0],)


def _gather_types(site: Site) -> tuple[TensorType, ...]:
    dim = _dim(site, "dim")
    return (_resized(site.types[0], dim, site.types[0].shape[dim] * group_size(site)),)


def _scatter_types(site: Site) -> tuple[TensorType, ...]:
    dim, n = _dim(site, "dim"), group_size(site)
    check_reduce(site)
    extent = site.types[0].shape[dim]
    if extent % n:
        raise site.fail(f"dim {dim} of extent {extent} does not divide into {n} equal pieces")
    return (_resized(site.types[0], dim, extent // n),)


def _all_to_all_types(site: Site) -> tuple[TensorType, ...]:
    split, concat, n = _dim(site, "split_dim"), _dim(site, "concat_dim"), group_size(site)
    x = site.types[0]
    if x.shape[split] % n:
        raise site.fail(f"dim {split} of extent {x.shape[split]} does not divide into {n} pieces")
    if split == concat:
        return (x,)
    return (_resized(_resized(x, split, x.shape[split] // n), concat, x.shape[concat] * n),)


def _all_reduce(d: Domain, group: Sequence[Array], reduce: str, **_: Any) -> list[Array]:
    return [_reduced(d, group, reduce)] * len(group)


def _all_gather(d: Domain, group: Sequence[Array], dim: int, **_: Any) -> list[Array]:
    return [np.concatenate(group, axis=dim)] * len(group)


def _reduce_scatter(
    d: Domain, group: Sequence[Array], dim: int, reduce: str, **_: Any
) -> list[Array]:
    return np.split(_reduced(d, group, reduce), len(group), axis=dim)


def _shard_slice(d: Domain, group: Sequence[Array], dim: int, **_: Any) -> list[Array]:
    return [np.split(x, len(group), axis=dim)[i] for i, x in enumerate(group)]


def _all_to_all(
    d: Domain, group: Sequence[Array], split_dim: int, concat_dim: int, **_: Any
) -> list[Array]:
    pieces = [np.split(x, len(group), axis=split_dim) for x in group]
    return [
        np.concatenate([piece[i] for piece in pieces], axis=concat_dim) for i in range(len(group))
    ]


def _on_coord(d: Domain, group: Sequence[Array], index: int, **_: Any) -> list[Array]:
    def zeros(x: Array) -> Array:
        return np.zeros_like(x) if is_index(x) else d.full(x.shape, Fraction(0))

    return [x if i == index else zeros(x) for i, x in enumerate(group)]


def _collective(
    name: str,
    meaning: Callable[..., list[Array]],
    types: Callable[[Site], tuple[TensorType, ...]],
    attrs: dict[str, Any],
    doc: str,
    traits: Traits,
) -> Op:
    return register(
        Op(
            name,
            "collective",
            "... -> ...",
            meaning,
            types,
            linear=(frozenset({0}),),
            attrs={"mesh_dim": REQUIRED, **attrs},
            flops=lambda types, results, _: 0,
            doc=doc,
            traits=traits,
        )
    )


all_reduce = _collective(
    "all_reduce",
    _all_reduce,
    _same,
    {"reduce": "sum"},
    "Partial to Replicate: reduce the values of a group, everyone gets the result.",
    Traits(keeps=1, adds=True, meets="all_reduce", levels=True, bounds=reduced),
)
all_gather = _collective(
    "all_gather",
    _all_gather,
    _gather_types,
    {"dim": REQUIRED},
    "Shard to Replicate: join the pieces of a group along `dim`, in rank order.",
    Traits(analytic=True, keeps=1, meets="all_gather", levels=True, bounds=among),
)
reduce_scatter = _collective(
    "reduce_scatter",
    _reduce_scatter,
    _scatter_types,
    {"dim": REQUIRED, "reduce": "sum"},
    "Partial to Shard: reduce, then each rank keeps its chunk along `dim`.",
    Traits(keeps=1, adds=True, meets="reduce_scatter", bounds=reduced),
)
shard_slice = _collective(
    "shard_slice",
    _shard_slice,
    _scatter_types,
    {"dim": REQUIRED},
    "Replicate to Shard: each rank keeps its chunk along `dim`; nothing is sent.",
    Traits(analytic=True, keeps=1, bounds=among),
)
all_to_all = _collective(
    "all_to_all",
    _all_to_all,
    _all_to_all_types,
    {"split_dim": REQUIRED, "concat_dim": REQUIRED},
    "Shard of `concat_dim` to Shard of `split_dim`. Along one dim, chunk i goes to rank i, and "
    "chunks join in the order of their senders.",
    Traits(analytic=True, keeps=1, meets="all_to_all", bounds=among),
)
on_coord = _collective(
    "on_coord",
    _on_coord,
    _same,
    {"index": 0},
    "Replicate to Partial: the value on one coordinate of a mesh dim, zeros on the others.",
    Traits(analytic=True, keeps=0, bounds=among_or_zero),
)


Vjp = Callable[..., list[str | None]]


def _dual(name: str, rename: dict[str, str], **fixed: Attr) -> Vjp:
    """The cotangent of a collective is another collective over the same mesh dims."""

    def rule(
        b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
    ) -> list[str | None]:
        kept = {new: attrs[old] for old, new in {"mesh_dim": "mesh_dim", **rename}.items()}
        return [b.add(name, _averaged(b, cts[0], attrs), **kept, **fixed)]

    return rule


def _averaged(b: Builder, ct: str, attrs: AttrMap) -> str:
    if attrs.get("reduce", "sum") not in ("sum", "avg"):
        raise IRError(f"a {attrs['reduce']} over {attrs['mesh_dim']} has no vjp")
    if attrs.get("reduce") != "avg":
        return ct
    count = math.prod(b.mesh[name] for name in mesh_dims(attrs["mesh_dim"]))
    return b.add("mul_scalar", ct, value=Fraction(1, count))


all_reduce.vjp(lambda b, ins, outs, cts, attrs: [_averaged(b, cts[0], attrs)])
all_gather.vjp(_dual("reduce_scatter", {"dim": "dim"}, reduce="sum"))
reduce_scatter.vjp(_dual("all_gather", {"dim": "dim"}))
shard_slice.vjp(_dual("all_gather", {"dim": "dim"}))
all_to_all.vjp(_dual("all_to_all", {"split_dim": "concat_dim", "concat_dim": "split_dim"}))
on_coord.vjp(_dual("on_coord", {"index": "index"}))
