"""Gathers and scatters by index values, with a window so that a shard of rows is the same op.

`offset` shifts the index: row `i - offset` is meant, and an index outside the rows at hand gives
(or receives) nothing. On a shard that starts at row `offset` this is the masked local lookup of
vocabulary-parallel layers (Shoeybi et al. 2019).
"""

from collections.abc import Callable
from typing import Any

from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, register
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import TensorType


def _take_types(site: Site) -> tuple[TensorType, ...]:
    if len(site.types) != 2 or site.types[1].is_float:
        raise site.fail("takes rows and an integer index")
    x, idx = site.types
    dim: int = site.attrs["dim"]
    if not 0 <= dim < len(x.shape):
        raise site.fail(f"take along dim {dim}")
    return (TensorType((*x.shape[:dim], *idx.shape, *x.shape[dim + 1 :]), x.dtype),)


def _index_add_types(site: Site) -> tuple[TensorType, ...]:
    g, idx = site.types
    if g.shape[: len(idx.shape)] != idx.shape or idx.is_float:
        raise site.fail("the values must begin with the dims of the index")
    if g.dtype in ("bool", "u8"):
        raise site.fail(f"{g.dtype} values do not add up; cast them to i64 first")
    return (TensorType((site.attrs["size"], *g.shape[len(idx.shape) :]), g.dtype),)


def _along_types(site: Site) -> tuple[TensorType, ...]:
    x, idx = site.types
    dim: int = site.attrs["dim"]
    if len(x.shape) != len(idx.shape) or idx.is_float or not 0 <= dim < len(x.shape):
        raise site.fail("takes values and an integer index of as many dims")
    if any(i != dim and a != b for i, (a, b) in enumerate(zip(x.shape, idx.shape, strict=True))):
        raise site.fail(f"values and index differ outside dim {dim}")
    return (TensorType(idx.shape, x.dtype),)


def _put_along_types(site: Site) -> tuple[TensorType, ...]:
    g, idx = site.types
    if g.shape != idx.shape or idx.is_float:
        raise site.fail("values and index must have one shape")
    dim: int = site.attrs["dim"]
    if not 0 <= dim < len(g.shape) or g.dtype in ("bool", "u8"):
        raise site.fail(f"adds numbers along dim {dim}, bool and u8 apart")
    return (TensorType((*g.shape[:dim], site.attrs["size"], *g.shape[dim + 1 :]), g.dtype),)


def _indexed(
    name: str,
    signature: str,
    types: Callable[[Site], tuple[TensorType, ...]],
    attrs: dict[str, Any],
) -> Op:
    known = Traits(keeps=0, index=1)
    attrs = {**attrs, "offset": 0}
    return register(Op(name, "index", signature, types, (frozenset({0}),), attrs, known))


take = _indexed("take", "... v ..., i -> ... i ...", _take_types, {"dim": 0})
index_add = _indexed("index_add", "i ..., i -> v ...", _index_add_types, {"size": REQUIRED})
take_along = _indexed(
    "take_along", "... v ..., ... i ... -> ... i ...", _along_types, {"dim": REQUIRED}
)
put_along = _indexed(
    "put_along",
    "... i ..., ... i ... -> ... v ...",
    _put_along_types,
    {"dim": REQUIRED, "size": REQUIRED},
)
