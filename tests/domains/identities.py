"""The identities of real functions that the forms of this package rest on, with side conditions.

Each is written once, on the scalar terms of any domain, and tried in `tests/domains`: on random
floats that meet the conditions, by Z3 where it knows the functions by their laws, and on the forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shardproof.verifier.domains.base import Array, Domain

Side = Callable[["Scalars", Mapping[str, Array]], Array]


class Scalars:
    """Words for the identities, on the scalars of a domain."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain

    def __call__(self, name: str, x: Array) -> Array:
        """A named function."""
        return self.domain.unary(name, x)

    def number(self, value: int | str | Fraction) -> Array:
        return self.domain.const(Fraction(value))

    def add(self, *terms: Array) -> Array:
        out = terms[0]
        for term in terms[1:]:
            out = self.domain.add(out, term)
        return out

    def sub(self, a: Array, b: Array) -> Array:
        return self.domain.sub(a, b)

    def mul(self, *factors: Array) -> Array:
        out = factors[0]
        for factor in factors[1:]:
            out = self.domain.mul(out, factor)
        return out

    def neg(self, a: Array) -> Array:
        return self.domain.neg(a)

    def div(self, a: Array, b: Array) -> Array:
        return self.domain.div(a, b)

    def scale(self, value: int | str | Fraction, a: Array) -> Array:
        return self.domain.mul(self.number(value), a)

    def max(self, *operands: Array) -> Array:
        return self.domain.amax(np.stack(operands), (0,))

    def min(self, a: Array, b: Array) -> Array:
        return self.domain.minimum(a, b)

    def truth(self, name: str, a: Array, b: Array) -> Array:
        """1 where the comparison holds, else 0."""
        return self.domain.where(self.compare(name, a, b), self.number(1), self.number(0))

    def compare(self, name: str, a: Array, b: Array) -> Array:
        return self.domain.compare(name, a, b)

    def where(self, cond: Array, a: Array, b: Array) -> Array:
        return self.domain.where(cond, a, b)


@dataclass(frozen=True)
class Identity:
    """`left = right` for all reals that meet the conditions."""

    name: str
    left: Side
    right: Side
    variables: str = "xyz"
    positive: str = ""
    """Variables that must be positive: what the identity divides by, or takes a root or log of."""
    decidable: bool = False
    """Whether Z3 proves it from arithmetic and the laws of `exp`, `rsqrt` and `reciprocal`."""
    note: str = ""

    def __str__(self) -> str:
        return self.name


def _one(s: Scalars) -> Array:
    return s.number(1)


def _zero(s: Scalars) -> Array:
    return s.number(0)


IDENTITIES: tuple[Identity, ...] = (
    # a field: denominators are not 0, which one device's definedness or a sign gives
    Identity(
        "a product distributes over a sum",
        lambda s, v: s.mul(v["x"], s.add(v["y"], v["z"])),
        lambda s, v: s.add(s.mul(v["z"], v["x"]), s.mul(v["y"], v["x"])),
        decidable=True,
    ),
    Identity(
        "a factor cancels its reciprocal",
        lambda s, v: s.div(s.mul(v["x"], v["y"]), v["x"]),
        lambda s, v: v["y"],
        "xy",
        positive="x",
        decidable=True,
        note="x is not 0",
    ),
    Identity(
        "a sum cancels its reciprocal",
        lambda s, v: s.add(
            s.div(v["x"], s.add(v["x"], v["y"])), s.div(v["y"], s.add(v["x"], v["y"]))
        ),
        lambda s, v: _one(s),
        "xy",
        positive="xy",
        decidable=True,
        note="x + y is not 0",
    ),
    Identity(
        "fractions meet over a common denominator",
        lambda s, v: s.sub(s.div(_one(s), v["x"]), s.div(_one(s), s.add(v["x"], _one(s)))),
        lambda s, v: s.div(_one(s), s.mul(v["x"], s.add(v["x"], _one(s)))),
        "x",
        positive="x",
        note="x and x + 1 are not 0",
    ),
    # exp and log
    Identity(
        "exp takes sums to products",
        lambda s, v: s("exp", s.add(v["x"], v["y"])),
        lambda s, v: s.mul(s("exp", v["y"]), s("exp", v["x"])),
        "xy",
        decidable=True,
    ),
    Identity(
        "exp of the negative is the reciprocal",
        lambda s, v: s.mul(s("exp", s.neg(v["x"])), s("exp", v["x"])),
        lambda s, v: _one(s),
        "x",
        decidable=True,
    ),
    Identity(
        "softmax knows no shift",
        lambda s, v: _softmax(s, s.sub(v["x"], v["z"]), s.sub(v["y"], v["z"])),
        lambda s, v: _softmax(s, v["x"], v["y"]),
    ),
    Identity(
        "softmax is shifted by any maximum",
        lambda s, v: _softmax(
            s, s.sub(v["x"], s.max(v["x"], v["y"])), s.sub(v["y"], s.max(v["x"], v["y"]))
        ),
        lambda s, v: _softmax(s, v["x"], v["y"]),
        "xy",
    ),
    Identity("log undoes exp", lambda s, v: s("log", s("exp", v["x"])), lambda s, v: v["x"], "x"),
    Identity(
        "exp undoes log",
        lambda s, v: s("exp", s.scale(2, s("log", v["x"]))),
        lambda s, v: s.mul(v["x"], v["x"]),
        "x",
        positive="x",
        note="x is positive",
    ),
    Identity(
        "log takes products of positive factors to sums",
        lambda s, v: s("log", s.scale(6, s.mul(s("exp", v["y"]), v["x"]))),
        lambda s, v: s.add(s("log", s.number(2)), s("log", s.number(3)), v["y"], s("log", v["x"])),
        "xy",
        positive="x",
        note="x is positive",
    ),
    Identity(
        "log-sum-exp moves with a shift",
        lambda s, v: s.add(_lse(s, s.sub(v["x"], v["z"]), s.sub(v["y"], v["z"])), v["z"]),
        lambda s, v: _lse(s, v["x"], v["y"]),
    ),
    Identity(
        "log1p and expm1 by log and exp",
        lambda s, v: s("log1p", s("expm1", v["x"])),
        lambda s, v: v["x"],
        "x",
    ),
    # roots
    Identity(
        "rsqrt squared is the reciprocal",
        lambda s, v: s.mul(s("rsqrt", v["x"]), s("rsqrt", v["x"]), v["x"]),
        lambda s, v: _one(s),
        "x",
        positive="x",
        decidable=True,
        note="x is positive",
    ),
    Identity(
        "sqrt squared is the operand",
        lambda s, v: s.mul(s("sqrt", v["x"]), s("sqrt", v["x"])),
        lambda s, v: v["x"],
        "x",
        positive="x",
        note="x is 0 or more",
    ),
    Identity(
        "sqrt by rsqrt",
        lambda s, v: s("sqrt", v["x"]),
        lambda s, v: s.mul(v["x"], s("rsqrt", v["x"])),
        "x",
        positive="x",
        note="x is positive",
    ),
    Identity(
        "positive numbers leave a root",
        lambda s, v: s("sqrt", s.scale(12, v["x"])),
        lambda s, v: s.mul(s.scale(2, s("sqrt", s.number(3))), s("sqrt", v["x"])),
        "x",
        positive="x",
        note="x is 0 or more",
    ),
    Identity(
        "the root of a square is the absolute value",
        lambda s, v: s("sqrt", s.mul(v["x"], v["x"])),
        lambda s, v: s("abs", v["x"]),
        "x",
    ),
    Identity(
        "a power by a root",
        lambda s, v: s.mul(s("pow:-3/2", v["x"]), v["x"], v["x"]),
        lambda s, v: s("sqrt", v["x"]),
        "x",
        positive="x",
        note="x is positive",
    ),
    # functions by exp
    Identity(
        "sigmoid by exp",
        lambda s, v: s("sigmoid", v["x"]),
        lambda s, v: s.div(_one(s), s.add(_one(s), s("exp", s.neg(v["x"])))),
        "x",
    ),
    Identity(
        "sigmoid of the negative",
        lambda s, v: s("sigmoid", s.neg(v["x"])),
        lambda s, v: s.sub(_one(s), s("sigmoid", v["x"])),
        "x",
    ),
    Identity(
        "tanh by sigmoid",
        lambda s, v: s("tanh", v["x"]),
        lambda s, v: s.sub(s.scale(2, s("sigmoid", s.scale(2, v["x"]))), _one(s)),
        "x",
    ),
    Identity(
        "silu by sigmoid",
        lambda s, v: s("silu", v["x"]),
        lambda s, v: s.mul(s("sigmoid", v["x"]), v["x"]),
        "x",
    ),
    Identity(
        "the slope of silu",
        lambda s, v: s("silu_grad", v["x"]),
        lambda s, v: s.add(
            s("sigmoid", v["x"]),
            s.mul(v["x"], s("sigmoid", v["x"]), s("sigmoid", s.neg(v["x"]))),
        ),
        "x",
    ),
    Identity(
        "softplus by log",
        lambda s, v: s.sub(s("softplus", v["x"]), s("softplus", s.neg(v["x"]))),
        lambda s, v: v["x"],
        "x",
    ),
    Identity(
        "gelu by erf, which is odd",
        lambda s, v: s.sub(s("gelu", v["x"]), v["x"]),
        lambda s, v: s("gelu", s.neg(v["x"])),
        "x",
    ),
    Identity(
        "the slope of gelu is symmetric about a half",
        lambda s, v: s.add(s("gelu_grad", v["x"]), s("gelu_grad", s.neg(v["x"]))),
        lambda s, v: _one(s),
        "x",
    ),
    Identity(
        "gelu by tanh",
        lambda s, v: s("gelu_tanh", v["x"]),
        lambda s, v: s.add(v["x"], s("gelu_tanh", s.neg(v["x"]))),
        "x",
    ),
    Identity(
        "the slope of gelu by tanh is symmetric about a half",
        lambda s, v: s.add(s("gelu_tanh_grad", v["x"]), s("gelu_tanh_grad", s.neg(v["x"]))),
        lambda s, v: _one(s),
        "x",
    ),
    Identity(
        "sine is odd, cosine even, their squares sum to 1",
        lambda s, v: s.sub(
            s.mul(s("cos", v["x"]), s("cos", s.neg(v["x"]))),
            s.mul(s("sin", v["x"]), s("sin", s.neg(v["x"]))),
        ),
        lambda s, v: _one(s),
        "x",
    ),
    # order
    Identity(
        "a maximum is a set",
        lambda s, v: s.max(s.max(v["x"], v["y"]), s.max(v["z"], v["x"])),
        lambda s, v: s.max(v["z"], v["y"], v["x"]),
        decidable=True,
    ),
    Identity(
        "a maximum moves with a shift and a positive scale",
        lambda s, v: s.max(
            s.add(s.scale(2, v["x"]), v["z"]), s.add(s.scale(2, v["y"]), v["z"]), s.scale(3, v["z"])
        ),
        lambda s, v: s.add(s.scale(2, s.max(v["x"], v["y"], v["z"])), v["z"]),
        decidable=True,
    ),
    Identity(
        "maximum and minimum share the sum",
        lambda s, v: s.add(s.max(v["x"], v["y"]), s.min(v["x"], v["y"])),
        lambda s, v: s.add(v["x"], v["y"]),
        "xy",
        decidable=True,
    ),
    Identity(
        "relu is a maximum",
        lambda s, v: s("relu", v["x"]),
        lambda s, v: s.max(_zero(s), v["x"]),
        "x",
    ),
    Identity(
        "relu is a choice, at 0 as well",
        lambda s, v: s("relu", v["x"]),
        lambda s, v: s.where(s.compare("ge", v["x"], _zero(s)), v["x"], _zero(s)),
        "x",
    ),
    Identity(
        "the slope of relu is a truth value",
        lambda s, v: s("relu_grad", v["x"]),
        lambda s, v: s.truth("lt", _zero(s), v["x"]),
        "x",
    ),
    Identity(
        "the absolute value is a maximum",
        lambda s, v: s("abs", v["x"]),
        lambda s, v: s.max(v["x"], s.neg(v["x"])),
        "x",
    ),
    Identity(
        "a number is its absolute value times its sign",
        lambda s, v: s.mul(s("abs", v["x"]), s("sign", v["x"])),
        lambda s, v: v["x"],
        "x",
    ),
    Identity(
        "truth values equal their squares and exclude each other",
        lambda s, v: s.add(
            s.mul(s.truth("lt", v["x"], v["y"]), s.truth("lt", v["x"], v["y"])),
            s.mul(s.truth("lt", v["x"], v["y"]), s.truth("gt", v["x"], v["y"])),
            s.truth("eq", v["x"], v["y"]),
        ),
        lambda s, v: s.sub(_one(s), s.truth("lt", v["y"], v["x"])),
        "xy",
        decidable=True,
    ),
    Identity(
        "comparisons know no positive factor",
        lambda s, v: s.truth(
            "le", s.mul(v["x"], s("exp", v["z"])), s.mul(v["y"], s("exp", v["z"]))
        ),
        lambda s, v: s.truth("ge", s.scale(2, v["y"]), s.scale(2, v["x"])),
    ),
    Identity(
        "a choice is arithmetic on a truth value",
        lambda s, v: s.where(s.compare("gt", v["x"], v["y"]), s.mul(v["z"], v["x"]), v["z"]),
        lambda s, v: s.mul(
            v["z"],
            s.add(_one(s), s.mul(s.truth("gt", v["x"], v["y"]), s.sub(v["x"], _one(s)))),
        ),
        decidable=True,
    ),
)


def _softmax(s: Scalars, x: Array, y: Array) -> Array:
    return s.div(s("exp", x), s.add(s("exp", x), s("exp", y)))


def _lse(s: Scalars, x: Array, y: Array) -> Array:
    return s("log", s.add(s("exp", x), s("exp", y)))
