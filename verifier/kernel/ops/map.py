"""Elementwise ops: numpy broadcasting, one result, dims pass through unchanged.

Those with a name of their own are declared here: sums, products, comparisons, choices and casts.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from shardproof.verifier.kernel.program.registry import (
    NO_TRAITS,
    REQUIRED,
    Op,
    Site,
    groups,
    register,
)
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import FLOATS, TensorType


@lru_cache(1 << 12)
def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """What shapes broadcast to. Raises ValueError."""
    return tuple(np.broadcast_shapes(*shapes))


def broadcast_shape(site: Site) -> tuple[int, ...]:
    """The shape that the operands broadcast to. Raises ShapeError."""
    try:
        return broadcast(*(t.shape for t in site.types))
    except ValueError:
        raise site.fail("shapes do not broadcast") from None


def promote(site: Site, types: Sequence[TensorType]) -> str:
    """Floats over integers over bools, wide over narrow; a 0-d operand does not widen its kind.

    Raises ShapeError where 8 bits would have to hold a wider operand.
    """
    order = ("bool", "u8", "i32", "i64", "bf16", "f16", "f32", "f64")
    kinds = ([t for t in types if t.kind == kind] for kind in ("float", "integer", "bool"))
    pool = next(filter(None, kinds))
    dtype = max((t.dtype for t in [t for t in pool if t.shape] or pool), key=order.index)
    if dtype == "u8" and any(t.dtype not in ("u8", "bool") for t in types):
        raise site.fail("the result would be u8, which an operand does not fit; cast it first")
    return dtype


def is_integer(value: Fraction) -> bool:
    """Whether a constant is an integer that fits in 64 bits."""
    return value.denominator == 1 and abs(value) < 2**63


def is_natural(value: Fraction) -> bool:
    """Whether a constant is an integer, 0 or more."""
    return value.denominator == 1 and value >= 0


def map_types(
    arity: int, traits: Traits, result: str | None = None
) -> Callable[[Site], tuple[TensorType, ...]]:
    def rule(site: Site) -> tuple[TensorType, ...]:
        if len(site.types) != arity:
            raise site.fail(f"takes {arity} operands")
        dtype = result or site.attrs.get("dtype") or promote(site, site.types)
        if dtype == "bool" and traits.closed != "bools":
            raise site.fail("bools do not add or scale; cast them first")
        if dtype == "u8" and traits.wraps:
            raise site.fail("u8 wraps at 256; cast to i64 first")
        value = site.attrs.get("value")
        if value is not None and dtype not in FLOATS and not is_integer(Fraction(value)):
            raise site.fail(f"{value} is not an integer of 64 bits")
        if dtype not in FLOATS and traits.closed == "floats":
            exponent = site.attrs.get("exponent")
            keeps = exponent is not None and is_natural(Fraction(exponent))
            dtype = dtype if keeps else "f32"
        return (TensorType(broadcast_shape(site), dtype),)

    return rule


def elementwise(
    name: str,
    arity: int = 1,
    traits: Traits = NO_TRAITS,
    *,
    linear: Any = None,
    attrs: dict[str, Any] | None = None,
    result: str | None = None,
) -> Op:
    """Declare an op on entries. Its results are of dtype `result`, or as operands promote."""
    signature = ", ".join(["..."] * arity) + " -> ..."
    types, linear = map_types(arity, traits, result), groups(linear, arity)
    return register(Op(name, "map", signature, types, linear, attrs or {}, traits))


AFFINE = Traits(strict=True, closed="integers", wraps=True)
"""Of sums and multiples."""
neg = elementwise("neg", 1, AFFINE, linear="each")
mul_scalar = elementwise("mul_scalar", 1, AFFINE, linear="each", attrs={"value": REQUIRED})
add_scalar = elementwise("add_scalar", 1, AFFINE, attrs={"value": REQUIRED})
cast = elementwise(
    "cast", 1, Traits(keeps=0, closed="bools"), linear="each", attrs={"dtype": REQUIRED}
)
add = elementwise(
    "add",
    2,
    Traits(strict=True, closed="integers", wraps=True, symmetric=True, keeps=1),
    linear="joint",
)
sub = elementwise("sub", 2, AFFINE, linear="joint")
mul = elementwise(
    "mul",
    2,
    Traits(strict=True, closed="bools", wraps=True, symmetric=True, keeps=1),
    linear="each",
)
div = elementwise("div", 2, Traits(strict=True, needs="not zero"), linear=[[0]])
maximum = elementwise("maximum", 2, Traits(closed="bools", symmetric=True, keeps=1))
minimum = elementwise("minimum", 2, Traits(closed="bools", symmetric=True, keeps=1))


def _truth(name: str, arity: int, symmetric: bool = False) -> Op:
    known = Traits(sign=0, closed="bools", symmetric=symmetric)
    return elementwise(name, arity, known, result="bool")


COMPARISONS = [
    *(_truth(name, 2, symmetric=True) for name in ("eq", "ne")),
    *(_truth(name, 2) for name in ("lt", "le", "gt", "ge")),
]
LOGIC = [
    *(_truth(f"logical_{word}", 2, symmetric=True) for word in ("and", "or")),
    _truth("logical_not", 1),
]


def _where_types(site: Site) -> tuple[TensorType, ...]:
    if len(site.types) != 3 or site.types[0].dtype != "bool":
        raise site.fail("takes a bool condition and two operands")
    return (TensorType(broadcast_shape(site), promote(site, site.types[1:])),)


where = register(
    Op(
        "where",
        "map",
        "..., ..., ... -> ...",
        _where_types,
        linear=(frozenset({1, 2}),),
        traits=Traits(keeps=1),
    )
)
