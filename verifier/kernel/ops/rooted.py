"""Collectives between one rank of a group and all of them: gather to a root, scatter from it.

The result of a gather lives on the root alone, and so may the operand of a scatter. On the other
ranks there is no such value, and a program that reads it there is misplaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import (
    REQUIRED,
    AttrMap,
    Op,
    Refused,
    Site,
    register,
)
from verifier.kernel.program.traits import Traits, among
from verifier.kernel.program.types import Mesh, TensorType
from verifier.kernel.program.where import Where, coordinates, moved, show, within

Pieces = list[Array | None]


def to_root(attrs: AttrMap, wheres: Sequence[Where], on: Where, mesh: Mesh) -> Where:
    """The ranks that hold a gathered result: the root of each whole group."""
    name, root = attrs["mesh_dim"], attrs["index"]
    (held,) = wheres
    if on and not within(on, held):
        raise Refused(f"runs on {show(on)}, but its operand lives on {show(held)} only", name, 0)
    joins = on or held
    if name in dict(joins):
        raise Refused(f"only {show(joins)} joins: the other ranks of the group never do", name, 0)
    return moved(joins, mesh, name, root)


def from_root(attrs: AttrMap, wheres: Sequence[Where], on: Where, mesh: Mesh) -> Where:
    """The ranks that hold a scattered result: the whole groups of the roots."""
    name, root = attrs["mesh_dim"], attrs["index"]
    (held,) = wheres
    if root not in coordinates(held, mesh, name):
        raise Refused(f"the root {name}={root} does not hold the value", name, 0)
    whole = tuple(item for item in held if item[0] != name)
    if not on:
        return whole
    if name in dict(on) or not within(on, whole):
        raise Refused(f"runs on {show(on)}, where not every group has all its ranks", name, 0)
    return on


def _check(site: Site, scatters: bool) -> tuple[TensorType, ...]:
    name: str | tuple[str, ...] = site.attrs["mesh_dim"]
    index: int = site.attrs["index"]
    dim: int = site.attrs["dim"]
    (x,) = site.types
    if not isinstance(name, str) or name not in site.mesh:
        raise site.fail(f"mesh_dim={name!r}; expected one dim of the mesh ({site.mesh or 'none'})")
    n = site.mesh[name]
    if not 0 <= index < n:
        raise site.fail(f"index={index} of {name}={n}")
    if not 0 <= dim < len(x.shape):
        raise site.fail(f"dim={dim} of a tensor of {len(x.shape)} dims")
    extent = x.shape[dim]
    if scatters and extent % n:
        raise site.fail(f"dim {dim} of extent {extent} does not divide into {n} equal pieces")
    made = extent // n if scatters else extent * n
    return (TensorType((*x.shape[:dim], made, *x.shape[dim + 1 :]), x.dtype),)


def _gather(d: Domain, group: Sequence[Array], dim: int, index: int, **_: Any) -> Pieces:
    joined = np.concatenate(group, axis=dim)
    return [joined if i == index else None for i in range(len(group))]


def _scatter(d: Domain, group: Sequence[Array], dim: int, index: int, **_: Any) -> Pieces:
    return list(np.split(group[index], len(group), axis=dim))


gather = register(
    Op(
        "gather",
        "movement",
        "... -> ...",
        _gather,
        lambda site: _check(site, scatters=False),
        linear=(frozenset({0}),),
        attrs={"mesh_dim": REQUIRED, "dim": REQUIRED, "index": 0},
        flops=lambda types, results, _: 0,
        doc="Shard to the root alone: the pieces of a group joined along `dim`, on one coordinate "
        "of a mesh dim.",
        region=to_root,
        traits=Traits(analytic=True, meets="gather", bounds=among),
    )
)
scatter = register(
    Op(
        "scatter",
        "movement",
        "... -> ...",
        _scatter,
        lambda site: _check(site, scatters=True),
        linear=(frozenset({0}),),
        attrs={"mesh_dim": REQUIRED, "dim": REQUIRED, "index": 0},
        flops=lambda types, results, _: 0,
        doc="From the root to Shard: each rank of a group gets its chunk along `dim` of the value "
        "on one coordinate of a mesh dim.",
        region=from_root,
        traits=Traits(analytic=True, meets="scatter", source="index", bounds=among),
    )
)


@gather.vjp
def _gather_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [b.add("scatter", cts[0], **attrs)]


@scatter.vjp
def _scatter_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [b.add("gather", cts[0], **attrs)]
