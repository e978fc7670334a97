"""Views and copies: ops that only move elements. Their relations are maps of atoms."""

import math
from collections.abc import Callable
from typing import Any

from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, register
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import TensorType

MOVES = Traits(strict=True, keeps=1)
"""Of ops of which every entry of the operand is an entry of the result."""


def view(
    name: str,
    types: Callable[[Site], tuple[TensorType, ...]],
    attrs: dict[str, Any],
    traits: Traits = MOVES,
) -> Op:
    """Declare an op that moves the entries of its operand."""
    return register(Op(name, "view", "... -> ...", types, (frozenset({0}),), attrs, traits))


def _reshape_types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    shape = tuple(site.attrs["shape"])
    if math.prod(shape) != x.size or min(shape, default=0) < 0:
        raise site.fail(f"{x.size} elements do not fill shape {list(shape)}")
    return (TensorType(shape, x.dtype),)


def _permute_types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    dims: tuple[int, ...] = tuple(site.attrs["dims"])
    if sorted(dims) != list(range(len(x.shape))):
        raise site.fail(f"dims {dims} do not permute {len(x.shape)} dims")
    return (TensorType(tuple(x.shape[d] for d in dims), x.dtype),)


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


reshape = view("reshape", _reshape_types, {"shape": REQUIRED})
permute = view("permute", _permute_types, {"dims": REQUIRED})
expand = view("expand", _expand_types, {"shape": REQUIRED})
