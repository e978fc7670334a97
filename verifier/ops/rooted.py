"""Gather to a root and scatter from it: what they compute, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain
from verifier.kernel.movements import rooted
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import AttrMap
from verifier.ops.bounds import among
from verifier.ops.facets import Facets, Names, Pulled, describe

Pieces = list[Array | None]


def _gather(d: Domain, group: Sequence[Array], dim: int, index: int, **_: Any) -> Pieces:
    joined = np.concatenate(group, axis=dim)
    return [joined if i == index else None for i in range(len(group))]


def _scatter(d: Domain, group: Sequence[Array], dim: int, index: int, **_: Any) -> Pieces:
    return list(np.split(group[index], len(group), axis=dim))


gather = describe(
    rooted.gather,
    Facets(
        _gather,
        "Shard to the root alone: the pieces of a group joined along `dim`, on one coordinate "
        "of a mesh dim.",
        analytic=True,
        bounds=among,
    ),
)
scatter = describe(
    rooted.scatter,
    Facets(
        _scatter,
        "From the root to Shard: each rank of a group gets its chunk along `dim` of the value "
        "on one coordinate of a mesh dim.",
        analytic=True,
        bounds=among,
        source="index",
    ),
)


@gather.vjp
def _gather_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    return [b.add("scatter", cts[0], **attrs)]


@scatter.vjp
def _scatter_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    return [b.add("gather", cts[0], **attrs)]
