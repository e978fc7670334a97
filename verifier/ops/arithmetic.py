"""Sums, products, comparisons, choices and casts: what they compute, and their gradients."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from shardproof.verifier.domains.base import Array, Domain, is_index
from shardproof.verifier.kernel.ops import map as elementwise
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import AttrMap, Op
from shardproof.verifier.ops.bounds import (
    ANY,
    Bounded,
    Bounds,
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
from shardproof.verifier.ops.facets import Facets, Names, Pulled, describe

Two = Callable[[Domain, Array, Array], Array]
"""A meaning of two operands."""


def _neg(d: Domain, x: Array) -> Array:
    return d.neg(x)


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
        return d.mul(x, np.asarray(int(value)))
    return d.mul(d.lift(x), d.const(Fraction(value)))


def _add_scalar(d: Domain, x: Array, value: Fraction) -> Array:
    if x.dtype.kind == "i":
        return d.add(x, np.asarray(int(value)))
    return d.add(d.lift(x), d.const(Fraction(value)))


def _cast(d: Domain, x: Array, dtype: str) -> Array:
    if dtype == "bool":
        return x if x.dtype.kind == "b" else d.compare("ne", x, np.zeros((), np.int64))
    if dtype in ("i64", "i32", "u8"):
        whole = x.astype(np.int64) if is_index(x) else d.truncate(x)
        return d.byte(whole) if dtype == "u8" else whole
    return d.lift(x)


def _product(a: Bounded) -> Bounds:
    if a.equal:
        low, high = magnitude(a.args[0])
        return low * low, high * high
    return times(*a.args)


def _pair(op: Op, meaning: Two, sign: str, bounds: Callable[[Bounded], Bounds]) -> Facets:
    return describe(op, meaning, f"`a {sign} b`.", analytic=True, bounds=bounds)


def _extreme(op: Op, meaning: Two, name: str, pick: Callable[..., float]) -> Facets:
    def bounds(a: Bounded) -> Bounds:
        return pick(*(low for low, _ in a.args)), pick(*(high for _, high in a.args))

    known = {"aten": (f"{op.name}.default",), "folds": frozenset({name}), "picks": "pair"}
    return describe(op, meaning, f"`{name}(a, b)`.", bounds=bounds, **known)


def _where(d: Domain, c: Array, a: Array, b: Array) -> Array:
    return d.where(c, a, b)


neg = describe(
    elementwise.neg,
    _neg,
    "`-x`.",
    aten=("neg.default",),
    analytic=True,
    bounds=applied(minus),
)
mul_scalar = describe(
    elementwise.mul_scalar,
    _mul_scalar,
    "`value * x`, an exact rational.",
    analytic=True,
    literal="value",
    nothing=Fraction(1),
    bounds=_scaled_bounds,
)
add_scalar = describe(
    elementwise.add_scalar,
    _add_scalar,
    "`x + value`.",
    rises=(0,),
    analytic=True,
    literal="value",
    nothing=Fraction(0),
    bounds=_shifted_bounds,
)
cast = describe(
    elementwise.cast,
    _cast,
    "Change of dtype: the identity over the reals, toward zero from floats to integers, "
    "modulo 256 to u8.",
    folds=frozenset({"max", "min"}),
    bounds=lambda a: a.args[0] if a.real else ANY,
)
add = _pair(elementwise.add, lambda d, a, b: d.add(a, b), "+", applied(plus))
sub = _pair(elementwise.sub, lambda d, a, b: d.sub(a, b), "-", applied(_less))
mul = _pair(elementwise.mul, lambda d, a, b: d.mul(a, b), "*", _product)
div = _pair(elementwise.div, lambda d, a, b: d.div(a, b), "/", applied(_over))
maximum = _extreme(elementwise.maximum, lambda d, a, b: d.maximum(a, b), "max", max)
minimum = _extreme(elementwise.minimum, lambda d, a, b: d.minimum(a, b), "min", min)
RISES = {"lt": (1,), "le": (1,), "gt": (0,), "ge": (0,)}
"""What a comparison rises in."""


def _compare(op: Op) -> Facets:
    def meaning(d: Domain, a: Array, b: Array) -> Array:
        return d.compare(op.name, a, b)

    rises, doc = RISES.get(op.name, ()), f"`a {op.name} b`."
    return describe(op, meaning, doc, rises=rises, truth=True, picks="pair", bounds=always(0, 1))


def _logic(op: Op) -> Facets:
    def meaning(d: Domain, *operands: Array) -> Array:
        return d.logical(op.name.removeprefix("logical_"), *operands)

    return describe(op, meaning, aten=(f"{op.name}.default",), truth=True, bounds=always(0, 1))


COMPARISONS = [*map(_compare, elementwise.COMPARISONS)]
LOGIC = [*map(_logic, elementwise.LOGIC)]
where = describe(
    elementwise.where,
    _where,
    "`a` where the condition holds, else `b`. Linear in `a` and `b` together.",
    picks="entry",
    bounds=lambda a: hull(*a.args[1:]),
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
    def rule(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
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
def _mul_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    return [
        reduce_to(b, b.add("mul", cts[0], ins[1]), ins[0]),
        reduce_to(b, b.add("mul", cts[0], ins[0]), ins[1]),
    ]


@div.vjp
def _div_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    over = b.add("div", cts[0], ins[1])
    return [
        reduce_to(b, over, ins[0]),
        reduce_to(b, b.add("neg", b.add("mul", over, outs[0])), ins[1]),
    ]


@where.vjp
def _where_vjp(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
    zero = b.add("full", shape=(), value=Fraction(0), dtype=b.types[cts[0]].dtype)
    return [
        None,
        reduce_to(b, b.add("where", ins[0], cts[0], zero), ins[1]),
        reduce_to(b, b.add("where", ins[0], zero, cts[0]), ins[2]),
    ]


def _picks(beats: str) -> Callable[..., list[str | None]]:
    """The larger (smaller) operand gets the cotangent; equal operands get half each."""

    def rule(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
        zero = b.add("full", shape=(), value=Fraction(0), dtype=b.types[cts[0]].dtype)
        half = b.add("mul_scalar", cts[0], value=Fraction(1, 2))
        tied = b.add("where", b.add("eq", *ins), half, zero)
        shares = [b.add("where", b.add(beats, a, c), cts[0], tied) for a, c in (ins, ins[::-1])]
        return [reduce_to(b, share, like) for share, like in zip(shares, ins, strict=True)]

    return rule


maximum.vjp(_picks("gt"))
minimum.vjp(_picks("lt"))
