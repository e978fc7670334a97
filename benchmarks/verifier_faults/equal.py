# pyright: basic
"""Equalities of terms that do not hold, each of which some fault would let Z3 show."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from shardproof.verifier.smt import solver as smt
from shardproof.verifier.smt.pointwise import ask
from shardproof.verifier.terms import Ref
from shardproof.verifier.terms.told import Call, Told

HALF, ONE, TWO = Fraction(1, 2), Fraction(1), Fraction(2)
Equality = tuple[Ref, Ref]


def of(t: Told, op: str, *args: Ref, **attrs: Any) -> Ref:
    return t.apply(op, args, attrs, ("f32",) * len(args))


def raw(t: Told, op: str, args: tuple[Ref, ...], attrs: tuple[Any, ...], *shape: int) -> Ref:
    return t.intern(op, args, attrs, shape)


def times(by: int | Fraction, x: Ref) -> Ref:
    return Ref(Fraction(by) * x.coef, x.id)


def plus(t: Told, *parts: Ref) -> Ref:
    return t.combine([(ONE, p) for p in parts])


def number(t: Told, value: int, *shape: int) -> Ref:
    return t.full(shape, Fraction(value))


def total(t: Told, x: Ref, *dims: int) -> Ref:
    return t.reduce("sum", x, dims, False)


def most(t: Told, x: Ref, *dims: int) -> Ref:
    return t.reduce("amax", x, dims, False)


def chosen(t: Told, condition: Ref, a: Ref, b: Ref) -> Ref:
    return t.apply("where", [condition, a, b], {}, ("bool", "f32", "f32"))


def part(t: Told, x: Ref, dim: int, start: int, stop: int, step: int = 1) -> Ref:
    shape = list(t.shape(x))
    shape[dim] = len(range(start, stop, step))
    return raw(t, "slice", (x,), (dim, start, stop, step), *shape)


WRONG: dict[str, Callable[[Told, Ref, Ref], Equality]] = {
    "the first entry is every entry": lambda t, x, y: (
        chosen(t, of(t, "eq", line(t), number(t, 0, 4)), x, y), x),
    "an entry but the last is every entry": lambda t, x, y: (
        chosen(t, of(t, "lt", line(t), number(t, 3, 4)), x, y), x),
    "entries of a tensor are one": lambda t, x, y: (of(t, "flip", x, dim=0), x),
    "a factor": lambda t, x, y: (times(2, x), x),
    "a square": lambda t, x, y: (t.product([x, x]), x),
    "one and zero": lambda t, x, y: (number(t, 1, 4), number(t, 0, 4)),
    "a guard": lambda t, x, y: (
        chosen(t, of(t, "gt", x, number(t, 0, 4)), of(t, "log", x), number(t, 0, 4)),
        of(t, "log", x)),
    "sine and square root": lambda t, x, y: (of(t, "sin", x), of(t, "silu", x)),
    "exp and its tangent": lambda t, x, y: (of(t, "exp", x), plus(t, x, number(t, 1, 4))),
    "a sigmoid of 0": lambda t, x, y: (of(t, "sigmoid", x), times(HALF, number(t, 1, 4))),
    "relu above 0": lambda t, x, y: (of(t, "relu", x), x),
    "an absolute value above 0": lambda t, x, y: (of(t, "abs", x), x),
    "a root and its square": lambda t, x, y: (
        t.product([of(t, "rsqrt", x), x]), number(t, 1, 4)),
    "an integer that a float is": lambda t, x, y: (of(t, "cast", x, dtype="i64"), x),
    "a truth value that a float is": lambda t, x, y: (of(t, "cast", x, dtype="bool"), x),
    "a factor below 0 of a maximum": lambda t, x, y: (
        raw(t, "amax", (times(-1, x),), ((0,),)), times(-1, most(t, x, 0))),
    "a maximum of sums": lambda t, x, y: (most(t, total(t, square(t), 1), 0),
                                          most(t, square(t), 0, 1)),
    "a sum of a number": lambda t, x, y: (
        raw(t, "sum", (number(t, 1, 4),), ((0,),)), number(t, 1)),
    "a sum of anything": lambda t, x, y: (total(t, x, 0), total(t, y, 0)),
    "a sum and a maximum": lambda t, x, y: (total(t, x, 0), most(t, x, 0)),
    "a sum of another order": lambda t, x, y: (
        total(t, t.product([x, y]), 0), total(t, t.product([x, of(t, "flip", y, dim=0)]), 0)),
    "a sum over other extents": lambda t, x, y: (
        total(t, t.product([square(t), t.permute(box(t, 4, 4), (1, 0))]), 0, 1),
        total(t, t.product([square(t), box(t, 4, 4)]), 0, 1)),
    "rows and columns": lambda t, x, y: (t.permute(square(t), (1, 0)), square(t)),
    "digits in another order": lambda t, x, y: (
        t.reshape(square(t), (16,)), t.reshape(t.permute(square(t), (1, 0)), (16,))),
    "dims in another order": lambda t, x, y: (
        raw(t, "permute", (box(t, 2, 2, 2),), ((1, 2, 0),), 2, 2, 2),
        raw(t, "permute", (box(t, 2, 2, 2),), ((2, 0, 1),), 2, 2, 2)),
    "another step": lambda t, x, y: (part(t, x, 0, 0, 4, 2), part(t, x, 0, 0, 2)),
    "another end of padding": lambda t, x, y: (
        raw(t, "pad", (x,), (0, 1, 0), 5), raw(t, "pad", (x,), (0, 0, 1), 5)),
    "another order of parts": lambda t, x, y: (
        raw(t, "concat", (x, x), (0,), 8), raw(t, "pad", (times(2, x),), (0, 0, 4), 8)),
    "an entry beyond the end": lambda t, x, y: (
        raw(t, "pad", (x,), (0, 0, 1), 5), raw(t, "pad", (part(t, wide(t, x), 0, 0, 5),),
                                               (0, 0, 0), 5)),
    "one branch": lambda t, x, y: (chosen(t, of(t, "lt", x, y), x, y), x),
    "a transposed factor": lambda t, x, y: (
        of(t, "mm", square(t), box(t, 4, 4)),
        total(t, t.product([t.reshape(square(t), (4, 1, 4)), t.reshape(box(t, 4, 4), (1, 4, 4))]),
              2)),
    "a block twice": lambda t, x, y: (
        total(t, tall(t), 0), plus(t, *[total(t, part(t, tall(t), 0, 0, 100), 0)] * 2)),
    "the first block for the second": lambda t, x, y: (
        total(t, tall(t), 0),
        plus(t, total(t, part(t, tall(t), 0, 0, 100), 0), raw(t, "sum", (raw(
            t, "reshape", (part(t, tall(t), 0, 0, 100),), (), 10, 10),), ((0, 1),)))),
    "a block": lambda t, x, y: (total(t, tall(t), 0), total(t, part(t, tall(t), 0, 0, 100), 0)),
    "columns for rows": lambda t, x, y: (
        t.permute(t.reshape(box(t, 16), (4, 4)), (1, 0)), t.reshape(box(t, 16), (4, 4))),
    "a minimum": lambda t, x, y: (of(t, "minimum", x, y), of(t, "maximum", x, y)),
    "a maximum": lambda t, x, y: (of(t, "maximum", x, y), chosen(t, of(t, "lt", x, y), x, y)),
    "a contradiction": lambda t, x, y: (
        of(t, "exp", of(t, "log", number(t, -1, 4))), number(t, 5, 4)),
    "a value where there is none": lambda t, x, y: (
        number(t, 1, 4), t.product([x, t.reciprocal(x)])),
}  # fmt: skip
"""What is wrong, by the term and the one that it is said to be."""


def box(t: Told, *shape: int) -> Ref:
    return t.var(f"box {shape}", shape)


def square(t: Told) -> Ref:
    return t.var("square", (4, 4))


def wide(t: Told, x: Ref) -> Ref:
    """With an entry more."""
    return raw(t, "concat", (x, t.var("more", (1,))), (0,), 5)


def tall(t: Told) -> Ref:
    """Of more entries than are written out."""
    return t.var("tall", (200,))


def line(t: Told) -> Ref:
    return of(t, "iota", shape=(4,), dim=0, offset=0, dtype="i64")


def said(make: Callable[[Told, Ref, Ref], Equality], hidden: bool = False) -> str:
    """What Z3 says of an equality; where terms are hidden, it is told nothing of them."""
    told = Told()
    one, other = make(told, told.var("x", (4,)), told.var("y", (4,)))
    seen = set() if hidden else set(range(len(told.nodes)))
    return ask(told, Call("", (one,), (), (), other), told.shape(one), {}, seen)


def equal_terms() -> str:
    """Z3 shows no equality that does not hold, and none by terms that it is not told of."""
    wrong = [name for name, make in WRONG.items() if said(make) == "shown"]
    if said(lambda t, x, y: (of(t, "exp", number(t, 0, 4)), of(t, "exp", times(0, x))), True) == (
        "shown"
    ):
        wrong.append("terms that it is not told of")
    return ", ".join(wrong)


def obligations() -> str:
    """An obligation as text says what was asked."""
    x, y = smt.real("x"), smt.real("y")
    f = smt.function("f", "real", "real")
    with smt.obligations() as found:
        smt.prove(f(x) == f(y), [x == y])
        smt.prove(x + y > y)
        smt.prove(x < y, [smt.forall([x], x < y)])
        smt.simplifies((x + y) * (x + y) == x * x + 2 * x * y + y * y)
    if len(found) != 4:
        return "an obligation is missing"
    differs = [o for o in found.values() if smt.read_smtlib(o.text) != o.status]
    return "the text says something else" if differs else ""
