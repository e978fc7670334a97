"""Sums, products, comparisons, choices and casts, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.kernel.ops.map import broadcast_shape, declare, one, promote, two
from verifier.kernel.program.builder import Builder
from verifier.kernel.program.registry import REQUIRED, AttrMap, Op, Site, register
from verifier.kernel.program.traits import (
    ANY,
    Bounded,
    Bounds,
    Traits,
    always,
    applied,
    hull,
    inverse,
    literal,
    magnitude,
    minus,
    plus,
    times,
)
from verifier.kernel.program.types import TensorType


def _affine(**more: Any) -> Traits:
    """Of sums and multiples."""
    return Traits(strict=True, analytic=True, closed="integers", wraps=True, **more)


neg = declare(
    "neg",
    1,
    one(lambda d, x: d.neg(x)),
    _affine(bounds=applied(minus)),
    linear="each",
    doc="`-x`.",
    aten=("neg.default",),
)


def _scaled_bounds(a: Bounded) -> Bounds:
    return times(a.args[0], literal(a))


def _shifted_bounds(a: Bounded) -> Bounds:
    return plus(a.args[0], literal(a))


def _less(a: Bounds, b: Bounds) -> Bounds:
    return plus(a, minus(b))


def _over(a: Bounds, b: Bounds) -> Bounds:
    return times(a, inverse(b))


def _mul_scalar(d: Domain, x: Array, value: Fraction) -> Array:
    if x.dtype.kind == "i":
        return x * int(value)
    return d.mul(d.lift(x), d.const(Fraction(value)))


def _add_scalar(d: Domain, x: Array, value: Fraction) -> Array:
    if x.dtype.kind == "i":
        return x + int(value)
    return d.add(d.lift(x), d.const(Fraction(value)))


mul_scalar = declare(
    "mul_scalar",
    1,
    _mul_scalar,
    _affine(literal="value", nothing=Fraction(1), bounds=_scaled_bounds),
    linear="each",
    attrs={"value": REQUIRED},
    doc="`value * x`, an exact rational.",
)
add_scalar = declare(
    "add_scalar",
    1,
    _add_scalar,
    _affine(
        rises=(0,),
        literal="value",
        nothing=Fraction(0),
        bounds=_shifted_bounds,
    ),
    attrs={"value": REQUIRED},
    doc="`x + value`.",
)


def _cast(d: Domain, x: Array, dtype: str) -> Array:
    if dtype == "bool":
        return x if x.dtype.kind == "b" else d.compare("ne", x, np.zeros((), np.int64))
    if dtype in ("i64", "i32", "u8"):
        whole = x.astype(np.int64) if is_index(x) else d.truncate(x)
        return whole % 256 if dtype == "u8" else whole
    return d.lift(x)


cast = declare(
    "cast",
    1,
    _cast,
    Traits(
        keeps=0,
        closed="bools",
        folds=frozenset({"max", "min"}),
        bounds=lambda a: a.args[0] if a.real else ANY,
    ),
    linear="each",
    attrs={"dtype": REQUIRED},
    doc="Change of dtype: the identity over the reals, toward zero from floats to integers, "
    "modulo 256 to u8.",
)


def _product(a: Bounded) -> Bounds:
    if a.equal:
        low, high = magnitude(a.args[0])
        return low * low, high * high
    return times(*a.args)


def _most(pick: Callable[..., float]) -> Callable[[Bounded], Bounds]:
    return lambda a: (pick(*(low for low, _ in a.args)), pick(*(high for _, high in a.args)))


add = declare(
    "add",
    2,
    two(lambda d, a, b: d.add(a, b)),
    _affine(symmetric=True, keeps=1, bounds=applied(plus)),
    linear="joint",
    doc="`a + b`.",
)
sub = declare(
    "sub",
    2,
    two(lambda d, a, b: d.sub(a, b)),
    _affine(bounds=applied(_less)),
    linear="joint",
    doc="`a - b`.",
)
mul = declare(
    "mul",
    2,
    two(lambda d, a, b: d.mul(a, b)),
    Traits(
        strict=True,
        analytic=True,
        symmetric=True,
        closed="bools",
        wraps=True,
        keeps=1,
        bounds=_product,
    ),
    linear="each",
    doc="`a * b`.",
)
div = declare(
    "div",
    2,
    two(lambda d, a, b: d.div(a, b)),
    Traits(
        strict=True,
        analytic=True,
        needs="not zero",
        bounds=applied(_over),
    ),
    linear=[[0]],
    doc="`a / b`.",
    flops=4,
)
maximum = declare(
    "maximum",
    2,
    two(lambda d, a, b: d.maximum(a, b)),
    Traits(
        symmetric=True,
        closed="bools",
        keeps=1,
        folds=frozenset({"max"}),
        picks="pair",
        bounds=_most(max),
    ),
    linear=[],
    doc="`max(a, b)`.",
    aten=("maximum.default",),
)
minimum = declare(
    "minimum",
    2,
    two(lambda d, a, b: d.minimum(a, b)),
    Traits(
        symmetric=True,
        closed="bools",
        keeps=1,
        folds=frozenset({"min"}),
        picks="pair",
        bounds=_most(min),
    ),
    linear=[],
    doc="`min(a, b)`.",
    aten=("minimum.default",),
)


def _truth(**more: Any) -> Traits:
    return Traits(truth=True, sign=0, closed="bools", bounds=always(0, 1), **more)


def _compare(name: str, rises: tuple[int, ...] = ()) -> Op:
    return declare(
        name,
        2,
        two(lambda d, a, b: d.compare(name, a, b)),
        _truth(picks="pair", rises=rises, symmetric=not rises),
        result="bool",
        doc=f"`a {name} b`.",
    )


COMPARISONS = [
    *map(_compare, ("eq", "ne")),
    *(_compare(name, (1,)) for name in ("lt", "le")),
    *(_compare(name, (0,)) for name in ("gt", "ge")),
]


def _logic(word: str, arity: int) -> Op:
    name = f"logical_{word}"

    def meaning(d: Domain, *operands: Array) -> Array:
        return d.logical(word, *operands)

    return declare(
        name, arity, meaning, _truth(symmetric=arity == 2), result="bool", aten=(f"{name}.default",)
    )


LOGIC = [_logic("and", 2), _logic("or", 2), _logic("not", 1)]


def _where_types(site: Site) -> tuple[TensorType, ...]:
    if len(site.types) != 3 or site.types[0].dtype != "bool":
        raise site.fail("takes a bool condition and two operands")
    return (TensorType(broadcast_shape(site), promote(site, site.types[1:])),)


def _where(d: Domain, c: Array, a: Array, b: Array) -> Array:
    return d.where(c, a, b)


where = register(
    Op(
        "where",
        "map",
        "..., ..., ... -> ...",
        _where,
        _where_types,
        linear=(frozenset({1, 2}),),
        flops=lambda types, results, _: results[0].size,
        doc="`a` where the condition holds, else `b`. Linear in `a` and `b` together.",
        traits=Traits(keeps=1, picks="entry", bounds=lambda a: hull(*a.args[1:])),
    )
)


def reduce_to(b: Builder, ct: str, like: str) -> str:
    """Sum a cotangent down to the shape that was broadcast."""
    shape, target = b.types[ct].shape, b.types[like].shape
    extra = len(shape) - len(target)
    dims = tuple(i for i, n in enumerate(shape) if i < extra or (target[i - extra] == 1 and n != 1))
    if dims:
        ct = b.add("sum", ct, dims=dims, keepdim=False)
    return ct if b.types[ct].shape == target else b.add("reshape", ct, shape=target)


def _scaled(value: int) -> Callable[..., list[str | None]]:
    def rule(
        b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
    ) -> list[str | None]:
        second = cts[0] if value == 1 else b.add("neg", cts[0])
        return [reduce_to(b, cts[0], ins[0]), reduce_to(b, second, ins[1])]

    return rule


add.vjp(_scaled(1))
sub.vjp(_scaled(-1))
neg.vjp(lambda b, ins, outs, cts, attrs: [b.add("neg", cts[0])])
cast.vjp(lambda b, ins, outs, cts, attrs: [b.add("cast", cts[0], dtype=b.types[ins[0]].dtype)])
mul_scalar.vjp(lambda b, ins, outs, cts, attrs: [b.add("mul_scalar", cts[0], value=attrs["value"])])
add_scalar.vjp(lambda b, ins, outs, cts, attrs: [cts[0]])


@mul.vjp
def _mul_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    return [
        reduce_to(b, b.add("mul", cts[0], ins[1]), ins[0]),
        reduce_to(b, b.add("mul", cts[0], ins[0]), ins[1]),
    ]


@div.vjp
def _div_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    over = b.add("div", cts[0], ins[1])
    return [
        reduce_to(b, over, ins[0]),
        reduce_to(b, b.add("neg", b.add("mul", over, outs[0])), ins[1]),
    ]


@where.vjp
def _where_vjp(
    b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
) -> list[str | None]:
    zero = b.add("full", shape=(), value=Fraction(0), dtype=b.types[cts[0]].dtype)
    return [
        None,
        reduce_to(b, b.add("where", ins[0], cts[0], zero), ins[1]),
        reduce_to(b, b.add("where", ins[0], zero, cts[0]), ins[2]),
    ]


def _picks(beats: str) -> Callable[..., list[str | None]]:
    """The larger (smaller) operand gets the cotangent; equal operands get half each."""

    def rule(
        b: Builder, ins: Sequence[str], outs: Sequence[str], cts: Sequence[str], attrs: AttrMap
    ) -> list[str | None]:
        zero = b.add("full", shape=(), value=Fraction(0), dtype=b.types[cts[0]].dtype)
        half = b.add("mul_scalar", cts[0], value=Fraction(1, 2))
        tied = b.add("where", b.add("eq", *ins), half, zero)
        shares = [b.add("where", b.add(beats, a, c), cts[0], tied) for a, c in (ins, ins[::-1])]
        return [reduce_to(b, share, like) for share, like in zip(shares, ins, strict=True)]

    return rule


maximum.vjp(_picks("gt"))
minimum.vjp(_picks("lt"))
