"""Collectives: what they compute of the values of one group, in group order; their gradients."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce as fold_left
from typing import Any

import numpy as np

from shardproof.verifier.domains.base import Array, Domain, is_index
from shardproof.verifier.kernel.ops import collectives
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.registry import AttrMap
from shardproof.verifier.kernel.program.types import Attr, mesh_dims
from shardproof.verifier.ops.bounds import among_or_zero, reduced
from shardproof.verifier.ops.facets import Names, Pulled, Vjp, describe, moves


def _reduced(d: Domain, parts: Sequence[Array], how: str) -> Array:
    pick: dict[str, Callable[[Array, Array], Array]] = {
        "sum": d.add,
        "avg": d.add,
        "max": d.maximum,
        "min": d.minimum,
    }
    out = fold_left(pick[how], parts)
    return d.mul(d.lift(out), d.const(Fraction(1, len(parts)))) if how == "avg" else out


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


def _shard_pad(d: Domain, group: Sequence[Array], dim: int, **_: Any) -> list[Array]:
    zeros = [_zeros(d, x) for x in group]
    return [np.concatenate([*zeros[:i], x, *zeros[i + 1 :]], axis=dim) for i, x in enumerate(group)]


def _all_to_all(
    d: Domain, group: Sequence[Array], split_dim: int, concat_dim: int, **_: Any
) -> list[Array]:
    pieces = [np.split(x, len(group), axis=split_dim) for x in group]
    return [
        np.concatenate([piece[i] for piece in pieces], axis=concat_dim) for i in range(len(group))
    ]


def _on_coord(d: Domain, group: Sequence[Array], index: int, **_: Any) -> list[Array]:
    return [x if i == index else _zeros(d, x) for i, x in enumerate(group)]


def _zeros(d: Domain, like: Array) -> Array:
    return np.zeros_like(like) if is_index(like) else d.full(like.shape, Fraction(0))


all_reduce = describe(
    collectives.all_reduce,
    _all_reduce,
    "Partial to Replicate: reduce the values of a group, everyone gets the result.",
    adds=True,
    bounds=reduced,
)
all_gather = moves(
    collectives.all_gather,
    _all_gather,
    "Shard to Replicate: join the pieces of a group along `dim`, in rank order.",
)
reduce_scatter = describe(
    collectives.reduce_scatter,
    _reduce_scatter,
    "Partial to Shard: reduce, then each rank keeps its chunk along `dim`.",
    adds=True,
    bounds=reduced,
)
shard_slice = moves(
    collectives.shard_slice,
    _shard_slice,
    "Replicate to Shard: each rank keeps its chunk along `dim`; nothing is sent.",
)
shard_pad = moves(
    collectives.shard_pad,
    _shard_pad,
    "Shard to Partial: each rank's chunk at its place along `dim`, zeros elsewhere; nothing is "
    "sent.",
    bounds=among_or_zero,
)
all_to_all = moves(
    collectives.all_to_all,
    _all_to_all,
    "Shard of `concat_dim` to Shard of `split_dim`. Along one dim, chunk i goes to rank i, and "
    "chunks join in the order of their senders.",
)
on_coord = moves(
    collectives.on_coord,
    _on_coord,
    "Replicate to Partial: the value on one coordinate of a mesh dim, zeros on the others.",
    bounds=among_or_zero,
)


def dual(name: str, rename: dict[str, str], **fixed: Attr) -> Vjp:
    """The cotangent of a collective is another collective over the same mesh dims."""

    def rule(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
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
all_gather.vjp(dual("reduce_scatter", {"dim": "dim"}, reduce="sum"))
reduce_scatter.vjp(dual("all_gather", {"dim": "dim"}))
shard_slice.vjp(dual("all_gather", {"dim": "dim"}))
shard_pad.vjp(dual("shard_slice", {"dim": "dim"}))
all_to_all.vjp(dual("all_to_all", {"split_dim": "concat_dim", "concat_dim": "split_dim"}))
on_coord.vjp(dual("on_coord", {"index": "index"}))
