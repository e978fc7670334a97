"""Pairs of terms: those that are equal, and those that are not."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

Write = Callable[..., str]


def part(op: Write, x: str, dim: int, start: int, stop: int) -> str:
    return op("slice", x, dim=dim, start=start, stop=stop)


def turn(op: Write, x: str) -> str:
    return op("permute", x, dims=(1, 0))


def row(op: Write, x: str, shape: tuple[int, ...]) -> str:
    return op("expand", op("sum", x, dims=(1,), keepdim=True), shape=shape)


def number(op: Write, value: int) -> str:
    return op("full", shape=(), value=value, dtype="i64")


def spots(op: Write) -> str:
    return op("iota", shape=(2, 1), dim=0)


S = (4, 4)
PAIRS: dict[str, tuple[Write, Write, tuple[tuple[int, ...], ...]]] = {
    "a product of a sum": (
        lambda op, a, b, c: op("mm", op("add", a, b), c),
        lambda op, a, b, c: op("add", op("mm", b, c), op("mm", a, c)),
        (S, S, S),
    ),
    "a product with a sum": (
        lambda op, a, b, c: op("mm", c, op("sub", a, b)),
        lambda op, a, b, c: op("sub", op("mm", c, a), op("mm", c, b)),
        (S, S, S),
    ),
    "three products": (
        lambda op, a, b, c: op("mm", op("mm", a, b), c),
        lambda op, a, b, c: op("mm", a, op("mm", b, c)),
        (S, S, S),
    ),
    "a transpose of products": (
        lambda op, a, b, c: turn(op, op("mm", op("mm", a, b), c)),
        lambda op, a, b, c: op("mm", turn(op, c), op("mm", turn(op, b), turn(op, a))),
        (S, S, S),
    ),
    "fused weights": (
        lambda op, a, b, c: op("concat", op("mm", a, b), op("mm", a, c), dim=1),
        lambda op, a, b, c: op("mm", a, op("concat", b, c, dim=1)),
        (S, S, S),
    ),
    "rows joined": (
        lambda op, a, b, c: op("concat", op("mm", a, c), op("mm", b, c), dim=0),
        lambda op, a, b, c: op("mm", op("concat", a, b, dim=0), c),
        (S, S, S),
    ),
    "fused weights, gated": (
        lambda op, a, b, c: op("mul", op("silu", op("mm", a, b)), op("mm", a, c)),
        lambda op, a, b, c: (
            lambda w: op("mul", op("silu", part(op, w, 1, 0, 4)), part(op, w, 1, 4, 8))
        )(op("mm", a, op("concat", b, c, dim=1))),
        (S, S, S),
    ),
    "a product in shares": (
        lambda op, a, b: op("mm", a, b),
        lambda op, a, b: op(
            "add",
            op("mm", part(op, a, 1, 0, 2), part(op, b, 0, 0, 2)),
            op("mm", part(op, a, 1, 2, 4), part(op, b, 0, 2, 4)),
        ),
        (S, S),
    ),
    "a product of joined columns": (
        lambda op, a, b, c: op("mm", op("concat", a, b, dim=1), c),
        lambda op, a, b, c: op(
            "add", op("mm", a, part(op, c, 0, 0, 4)), op("mm", b, part(op, c, 0, 4, 8))
        ),
        (S, S, (8, 4)),
    ),
    "columns of a product": (
        lambda op, a, b: part(op, op("gelu", op("mm", a, b)), 1, 1, 3),
        lambda op, a, b: op("gelu", op("mm", a, part(op, b, 1, 1, 3))),
        (S, S),
    ),
    "pieces of a function": (
        lambda op, a, b: op("mul", op("exp", op("mm", a, b)), a),
        lambda op, a, b: op(
            "concat",
            *(
                op(
                    "mul",
                    op("exp", op("mm", part(op, a, 0, i, i + 2), b)),
                    part(op, a, 0, i, i + 2),
                )
                for i in (0, 2)
            ),
            dim=0,
        ),
        (S, S),
    ),
    "a scale of rows": (
        lambda op, a, b: op("mm", op("mul", a, row(op, b, S)), b),
        lambda op, a, b: op("mul", op("mm", a, b), row(op, b, S)),
        (S, S),
    ),
    "a scale out of a sum": (
        lambda op, a, b: op("sum", op("mul", a, row(op, b, S)), dims=(1,)),
        lambda op, a, b: op("mul", op("sum", b, dims=(1,)), op("sum", a, dims=(1,))),
        (S, S),
    ),
    "a product of sums": (
        lambda op, a, b, c: op("mul", op("add", a, b), c),
        lambda op, a, b, c: op("add", op("mul", c, b), op("mul", a, c)),
        (S, S, (4,)),
    ),
    "a sum of a sum": (
        lambda op, a, b: op("sum", op("add", a, op("expand", b, shape=S)), dims=(0,)),
        lambda op, a, b: op("add", op("sum", a, dims=(0,)), op("mul_scalar", b, value=Fraction(4))),
        (S, (4,)),
    ),
    "a sum of joined parts": (
        lambda op, a, b: op("sum", op("concat", a, b, dim=0), dims=(0,)),
        lambda op, a, b: op("sum", op("add", a, b), dims=(0,)),
        (S, S),
    ),
    "a sum beside joined parts": (
        lambda op, a, b: op("sum", op("concat", a, b, dim=0), dims=(1,)),
        lambda op, a, b: op("concat", op("sum", a, dims=(1,)), op("sum", b, dims=(1,)), dim=0),
        (S, S),
    ),
    "a sum in two": (
        lambda op, a: op("sum", a, dims=(0, 1)),
        lambda op, a: op(
            "add",
            op("sum", part(op, a, 0, 0, 2), dims=(0, 1)),
            op("sum", part(op, a, 0, 2, 4), dims=(0, 1)),
        ),
        (S,),
    ),
    "slices of sums": (
        lambda op, a, b: part(op, op("sum", op("mul", a, b), dims=(1,)), 0, 1, 3),
        lambda op, a, b: op(
            "sum", op("mul", part(op, a, 0, 1, 3), part(op, b, 0, 1, 3)), dims=(1,)
        ),
        (S, S),
    ),
    "slices of broadcasts": (
        lambda op, a, b: part(op, op("mul", a, op("expand", b, shape=S)), 1, 1, 3),
        lambda op, a, b: op("mul", part(op, a, 1, 1, 3), part(op, b, 0, 1, 3)),
        (S, (4,)),
    ),
    "a slice of a broadcast alone": (
        lambda op, a: part(op, op("expand", a, shape=(3, 4)), 1, 1, 3),
        lambda op, a: op("expand", part(op, a, 0, 1, 3), shape=(3, 2)),
        ((4,),),
    ),
    "views of functions": (
        lambda op, a, b: op("reshape", turn(op, op("tanh", op("add", a, b))), shape=(16,)),
        lambda op, a, b: op(
            "tanh", op("reshape", op("add", turn(op, b), turn(op, a)), shape=(16,))
        ),
        (S, S),
    ),
    "transposes of pieces": (
        lambda op, a, b: turn(op, op("concat", part(op, a, 1, 1, 3), b, dim=1)),
        lambda op, a, b: op("concat", part(op, turn(op, a), 0, 1, 3), turn(op, b), dim=0),
        (S, S),
    ),
    "a function of joined parts": (
        lambda op, a, b, c: op("mul", op("exp", op("concat", a, b, dim=1)), c),
        lambda op, a, b, c: op(
            "concat",
            op("mul", op("exp", a), part(op, c, 1, 0, 4)),
            op("mul", op("exp", b), part(op, c, 1, 4, 8)),
            dim=1,
        ),
        (S, S, (4, 8)),
    ),
    "padding that is cut off": (
        lambda op, a, b: part(op, op("mul", op("pad", a, dim=0, lo=0, hi=3), b), 0, 0, 3),
        lambda op, a, b: op("mul", part(op, a, 0, 0, 3), part(op, b, 0, 0, 3)),
        (S, (7, 4)),
    ),
    "padding within a product": (
        lambda op, a, b: op("mm", op("pad", a, dim=1, lo=1, hi=2), b),
        lambda op, a, b: op("mm", a, part(op, b, 0, 1, 5)),
        (S, (7, 4)),
    ),
    "blocks in another shape": (
        lambda op, a, b: op("reshape", op("concat", a, b, dim=0), shape=(2, 3, 2, 2)),
        lambda op, a, b: op(
            "concat",
            op("reshape", a, shape=(1, 3, 2, 2)),
            op("reshape", b, shape=(1, 3, 2, 2)),
            dim=0,
        ),
        ((3, 4), (3, 4)),
    ),
    "heads that are cut off": (
        lambda op, a: part(op, op("reshape", op("tanh", a), shape=(8, 3)), 0, 2, 6),
        lambda op, a: op("tanh", op("reshape", part(op, a, 0, 1, 3), shape=(4, 3))),
        ((4, 2, 3),),
    ),
    "entries marked by where they stand": (
        lambda op, a, b: op(
            "mul",
            op("concat", a, b, dim=0),
            op("cast", op("lt", op("iota", shape=(6,), dim=0), number(op, 4)), dtype="f32"),
        ),
        lambda op, a, b: op("pad", a, dim=0, lo=0, hi=2),
        ((4,), (2,)),
    ),
    "heads that are cut off, turned": (
        lambda op, a: part(op, turn(op, op("reshape", a, shape=(8, 3))), 1, 2, 6),
        lambda op, a: turn(op, op("reshape", part(op, a, 0, 1, 3), shape=(4, 3))),
        ((4, 2, 3),),
    ),
    "shares of a softmax": (
        lambda op, a, b: op("exp", op("sub", a, op("log", row(op, op("exp", b), S)))),
        lambda op, a, b: op("div", op("exp", a), row(op, op("exp", b), S)),
        (S, S),
    ),
    "lookups in parts": (
        lambda op, a: op("take_along", a, op("concat", spots(op), spots(op), dim=0), dim=1),
        lambda op, a: op(
            "concat",
            op("take_along", part(op, a, 0, 0, 2), spots(op), dim=1),
            op("take_along", part(op, a, 0, 2, 4), spots(op), dim=1),
            dim=0,
        ),
        (S,),
    ),
    "lines of a lookup": (
        lambda op, a: part(op, op("take_along", a, op("iota", shape=S, dim=1), dim=1), 0, 1, 3),
        lambda op, a: op(
            "take_along", part(op, a, 0, 1, 3), op("iota", shape=(2, 4), dim=1), dim=1
        ),
        (S,),
    ),
    "numbers of a part": (
        lambda op, a: part(op, op("mul", op("iota", shape=(6,), dim=0, dtype="f32"), a), 0, 2, 6),
        lambda op, a: op(
            "mul", part(op, a, 0, 2, 6), op("iota", shape=(4,), dim=0, offset=2, dtype="f32")
        ),
        ((6,),),
    ),
    "a choice by where entries stand": (
        lambda op, a, b: part(
            op,
            op("where", op("ge", op("iota", shape=(6,), dim=0), number(op, 4)), a, b),
            0,
            3,
            6,
        ),
        lambda op, a, b: op("concat", part(op, b, 0, 3, 4), part(op, a, 0, 4, 6), dim=0),
        ((6,), (6,)),
    ),
}
WRONG: dict[str, tuple[Write, Write, tuple[tuple[int, ...], ...]]] = {
    "products do not commute": (
        lambda op, a, b: op("mm", a, b),
        lambda op, a, b: op("mm", b, a),
        (S, S),
    ),
    "weights joined in another order": (
        lambda op, a, b, c: op("concat", op("mm", a, c), op("mm", a, b), dim=1),
        lambda op, a, b, c: op("mm", a, op("concat", b, c, dim=1)),
        (S, S, S),
    ),
    "shares that overlap": (
        lambda op, a, b: op("mm", a, b),
        lambda op, a, b: op(
            "add",
            op("mm", part(op, a, 1, 0, 2), part(op, b, 0, 0, 2)),
            op("mm", part(op, a, 1, 1, 3), part(op, b, 0, 1, 3)),
        ),
        (S, S),
    ),
    "a mark that is off by one": (
        lambda op, a, b: op(
            "mul",
            op("concat", a, b, dim=0),
            op("cast", op("lt", op("iota", shape=(6,), dim=0), number(op, 5)), dtype="f32"),
        ),
        lambda op, a, b: op("pad", a, dim=0, lo=0, hi=2),
        ((4,), (2,)),
    ),
    "blocks that are cut inside": (
        lambda op, a: part(op, op("reshape", a, shape=(8, 3)), 0, 1, 5),
        lambda op, a: op("reshape", part(op, a, 0, 1, 3), shape=(4, 3)),
        ((4, 2, 3),),
    ),
    "a function of a sum": (
        lambda op, a, b: op("relu", op("add", a, b)),
        lambda op, a, b: op("add", op("relu", a), op("relu", b)),
        (S, S),
    ),
}
