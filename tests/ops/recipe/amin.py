"""A reduction: the least entry over dims, which ranks take the minimum of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold_left

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.kernel.ops import reduce
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import AttrMap
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.ops.bounds import among
from shardproof.verifier.ops.reduce import kept, reduction


def _amin(d: Domain, x: Array, dims: tuple[int, ...]) -> Array:
    for dim in sorted(dims, reverse=True):
        x = fold_left(d.minimum, [x[(slice(None),) * dim + (i, ...)] for i in range(x.shape[dim])])
    return x


amin = reduction(
    reduce.reduction("amin", Traits(keeps=1), checked="min"),
    _amin,
    "Minimum over `dims`. A split dim leaves a pending min.",
    fold="min",
    picks="entry",
    bounds=among,
)


@amin.vjp
def _vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    """Entries that tie for the minimum share the cotangent."""
    shape, dims = kept(b.types[ins[0]].shape, attrs["dims"]), tuple(attrs["dims"])
    there = b.add("eq", ins[0], b.add("reshape", outs[0], shape=shape))
    least = b.add("cast", there, dtype=b.types[ins[0]].dtype)
    share = b.add("div", least, b.add("sum", least, dims=dims, keepdim=True))
    return [b.add("mul", b.add("reshape", cts[0], shape=shape), share)]
