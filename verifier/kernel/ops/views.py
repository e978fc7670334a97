"""Views and copies: ops that only move elements. Their relations are maps of atoms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain
from verifier.kernel.ops.arithmetic import reduce_to
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import (
    REQUIRED,
    SPREADS,
    AttrMap,
    Op,
    Site,
    register,
)
from verifier.kernel.program.traits import Traits, among
from verifier.kernel.program.types import TensorType


def _reshape_types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    shape = tuple(site.attrs["shape"])
    if math.prod(shape) != x.size or min(shape, default=0) < 0:
        raise site.fail(f"{x.size} elements do not fill shape {list(shape)}")
    return (TensorType(shape, x.dtype),)


def copy_cost(types: Sequence[TensorType], results: Sequence[TensorType], attrs: AttrMap) -> int:
    """Nothing is computed."""
    return 0


MOVES = Traits(strict=True, analytic=True, keeps=1, bounds=among)
"""Of ops of which every entry of the operand is an entry of the result."""


def view(
    name: str,
    meaning: Callable[..., Any],
    types: Callable[[Site], tuple[TensorType, ...]],
    attrs: dict[str, Any],
    doc: str,
    tags: frozenset[str] = frozenset(),
    traits: Traits = MOVES,
) -> Op:
    """Declare an op that moves the entries of its operand."""
    return register(
        Op(
            name,
            "view",
            "... -> ...",
            meaning,
            types,
            linear=(frozenset({0}),),
            attrs=attrs,
            flops=copy_cost,
            doc=doc,
            tags=tags,
            traits=traits,
        )
    )


def _reshape(d: Domain, x: Array, shape: tuple[int, ...]) -> Array:
    return x.reshape(shape)


reshape = view(
    "reshape",
    _reshape,
    _reshape_types,
    {"shape": REQUIRED},
    "The same elements in row-major order under another shape.",
)


def _permute_types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    dims: tuple[int, ...] = tuple(site.attrs["dims"])
    if sorted(dims) != list(range(len(x.shape))):
        raise site.fail(f"dims {dims} do not permute {len(x.shape)} dims")
    return (TensorType(tuple(x.shape[d] for d in dims), x.dtype),)


def _permute(d: Domain, x: Array, dims: tuple[int, ...]) -> Array:
    return x.transpose(dims)


permute = view(
    "permute",
    _permute,
    _permute_types,
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


def _expand(d: Domain, x: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(x, shape)


expand = view(
    "expand",
    _expand,
    _expand_types,
    {"shape": REQUIRED},
    "Repeat dims of extent 1 (and new leading dims) up to a shape.",
    SPREADS,
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
    return [reduce_to(b, cts[0], ins[0])]
