"""Integer expressions of bounded variables as `const + sum(coef * var)`, exactly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shardproof.synthesis.frontends.tir.tree import (
    COMPARISONS,
    Apply,
    Expr,
    Load,
    TIRVar,
    apply,
    as_int,
    children,
    number,
)

Ints = NDArray[np.int64]


class NotAffine(Exception):  # noqa: N818  (an answer, not a failure)
    """The expression is not affine in its variables."""


class NeedsSplit(Exception):  # noqa: N818  (an answer, not a failure)
    """It is affine once variable `var` is written as `high * size + low`."""

    def __init__(self, var: str, size: int) -> None:
        super().__init__(var)
        self.var, self.size = var, size


@dataclass(frozen=True, slots=True)
class Linear:
    const: int
    terms: tuple[tuple[str, int], ...] = ()
    """(variable, coefficient), sorted by variable, no zero coefficient."""

    @classmethod
    def of(cls, const: int, coefs: Mapping[str, int]) -> Linear:
        return cls(const, tuple(sorted((v, c) for v, c in coefs.items() if c)))

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        coefs = dict(self.terms)
        for v, c in other.terms:
            coefs[v] = coefs.get(v, 0) + sign * c
        return Linear.of(self.const + sign * other.const, coefs)

    def times(self, k: int) -> Linear:
        return Linear.of(self.const * k, {v: c * k for v, c in self.terms})

    def span(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """Least and greatest value over the box of its variables (both are attained)."""
        low = high = self.const
        for v, c in self.terms:
            reach = c * (extents[v] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def expr(self) -> Expr:
        out: Expr = number(self.const)
        for v, c in self.terms:
            out = apply("add", (apply("mul", (TIRVar(v), number(c))), out))
        return out


def linear(expr: Expr, extents: Mapping[str, int]) -> Linear:
    """The affine form. Quotients and remainders by constants are resolved from the extents.

    Raises:
        NotAffine: it has none.
        NeedsSplit: it has one after a variable is split.
    """
    known = as_int(expr)
    if known is not None:
        return Linear(known)
    if isinstance(expr, TIRVar) and expr.name in extents:
        return Linear.of(0, {expr.name: 1})
    if isinstance(expr, Apply):
        if expr.op == "cast" and str(expr.attr).startswith("i"):
            return linear(expr.args[0], extents)
        if expr.op == "neg":
            return linear(expr.args[0], extents).times(-1)
        if expr.op in ("add", "sub", "mul", "floordiv", "floormod"):
            a, b = (linear(x, extents) for x in expr.args)
            if expr.op in ("add", "sub"):
                return a.plus(b, 1 if expr.op == "add" else -1)
            if expr.op == "mul":
                if a.terms and b.terms:
                    raise NotAffine
                return b.times(a.const) if not a.terms else a.times(b.const)
            if b.terms or b.const <= 0:
                raise NotAffine
            quotient, rest = _divide(a, b.const, extents)
            return quotient if expr.op == "floordiv" else rest
    raise NotAffine


def _divide(a: Linear, by: int, extents: Mapping[str, int]) -> tuple[Linear, Linear]:
    """`a = by * quotient + rest` with `0 <= rest < by` everywhere."""
    high = {v: c // by for v, c in a.terms if c % by == 0}
    low = {v: c for v, c in a.terms if c % by}
    rest = Linear.of(a.const % by, low)
    least, most = rest.span(extents)
    if least >= 0 and most < by:
        return Linear.of(a.const // by, high), rest
    for v, c in rest.terms:
        size = by // c if c > 0 and by % c == 0 else 0
        if 1 < size < extents[v] and extents[v] % size == 0:
            raise NeedsSplit(v, size)
    raise NotAffine


def compact(terms: tuple[tuple[str, int], ...], extents: Mapping[str, int]) -> list[str] | None:
    """Variables, most significant first, where the terms count 0, s, 2s, ... once each, s > 0.

    A mixed-radix number: each coefficient is the next one times its extent.
    """
    ordered = sorted(terms, key=lambda t: (-t[1], t[0]))
    if any(c <= 0 for _, c in ordered):
        return None
    for (_, outer), (v, inner) in pairwise(ordered):
        if outer != inner * extents[v]:
            return None
    return [v for v, _ in ordered]


def on_arrays(expr: Expr, env: Mapping[str, Ints]) -> Ints:
    """The value of an integer or boolean expression for arrays of its variables. NotAffine where
    a node is not an integer operation."""
    known = as_int(expr)
    if known is not None:
        return np.asarray(known, np.int64)
    if isinstance(expr, TIRVar):
        return env[expr.name]
    if isinstance(expr, Load) or not isinstance(expr, Apply) or expr.op not in _ARRAYS:
        raise NotAffine
    return np.asarray(_ARRAYS[expr.op](*(on_arrays(a, env) for a in children(expr))))


_PLAIN = ("add", "sub", "mul", "neg", "floordiv", *COMPARISONS)
_UFUNCS = ("maximum", "minimum", "logical_and", "logical_or", "logical_not")
_ARRAYS: dict[str, Callable[..., Ints]] = {
    **{name: getattr(operator, name) for name in _PLAIN},
    **{name: getattr(np, name) for name in _UFUNCS},
    "floormod": np.mod,
}
