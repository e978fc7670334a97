"""Gather to a root and scatter from it: what they compute, and their gradients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.kernel.movements import rooted
from shardproof.verifier.ops.collectives import dual
from shardproof.verifier.ops.facets import moves

Pieces = list[Array | None]


def _gather(d: Domain, group: Sequence[Array], dim: int, index: int, **_: Any) -> Pieces:
    joined = np.concatenate(group, axis=dim)
    return [joined if i == index else None for i in range(len(group))]


def _scatter(d: Domain, group: Sequence[Array], dim: int, index: int, **_: Any) -> Pieces:
    return list(np.split(group[index], len(group), axis=dim))


gather = moves(
    rooted.gather,
    _gather,
    "Shard to the root alone: the pieces of a group joined along `dim`, on one coordinate "
    "of a mesh dim.",
)
scatter = moves(
    rooted.scatter,
    _scatter,
    "From the root to Shard: each rank of a group gets its chunk along `dim` of the value "
    "on one coordinate of a mesh dim.",
    source="index",
)

gather.vjp(dual("scatter", {"dim": "dim", "index": "index"}))
scatter.vjp(dual("gather", {"dim": "dim", "index": "index"}))
