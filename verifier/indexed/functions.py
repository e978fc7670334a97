"""Functions of expressions, and the laws of those that have some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from verifier.indexed.form import (
    ONE,
    ZERO,
    Body,
    Factor,
    Index,
    Mono,
    Poly,
    UnclearError,
    reads,
)
from verifier.indexed.sums import Sums

MAX_BOXES = 16
Box = tuple[tuple[int, int, int], ...]


def apply(
    sums: Sums, head: tuple[Any, ...], values: Sequence[Poly], at: tuple[Index, ...] = ()
) -> Poly:
    """A function of values, one for each box on which these are given by one expression."""
    boxes = _boxes(sums, values)
    out: list[Poly] = []
    for box in boxes:
        inside = [_inside(sums, v, box) for v in values]
        made = _applied(sums, head, inside, at)
        for name, low, high in box:
            made = sums.within(made, name, low, high)
        out.append(made)
    return sums.add(out) if len(out) > 1 else out[0]


def _boxes(sums: Sums, values: Sequence[Poly]) -> list[Box]:
    """Boxes of outer variables that no range of the values cuts through."""
    edges: dict[int, set[int]] = {}
    for poly in values:
        for _, mono in poly:
            sums.writer.check(mono)
            for name, low, high in mono.ranges:
                if name not in mono.bound:
                    found = edges.setdefault(name, {0, sums.space.extents[name]})
                    found |= {low, high}
    sides = [[(v, a, b) for a, b in pairwise(sorted(cut))] for v, cut in sorted(edges.items())]
    boxes = list(product(*sides))
    if len(boxes) > MAX_BOXES:
        raise UnclearError("too many pieces")
    return boxes


def _inside(sums: Sums, poly: Poly, box: Box) -> Poly:
    """The expression in a box, without the ranges that hold there."""
    limits = {v: (a, b) for v, a, b in box}
    out: list[tuple[Fraction, Mono]] = []
    for coef, mono in poly:
        outer = [r for r in mono.ranges if r[0] in limits and r[0] not in mono.bound]
        if all(a <= limits[v][0] and limits[v][1] <= b for v, a, b in outer):
            kept = tuple(r for r in mono.ranges if r not in outer)
            out.append((coef, Mono(mono.factors, mono.bound, kept)))
    return sums.collected(out)


def _applied(
    sums: Sums, head: tuple[Any, ...], values: Sequence[Poly], at: tuple[Index, ...]
) -> Poly:
    law = _LAWS.get(head[0])
    if law is not None and len(head) == 1:
        return law(sums, list(values))
    return sums.of(Factor(head, at, tuple(map(Body, values))))


def _minus(sums: Sums, a: Poly, b: Poly) -> Poly:
    return sums.add([a, sums.scale(b, Fraction(-1))])


def _not(sums: Sums, value: Poly) -> Poly:
    return _minus(sums, ONE, value)


def _le(sums: Sums, values: list[Poly]) -> Poly:
    return sums.of(Factor(("le0",), (), (Body(_minus(sums, *values)),)))


def _lt(sums: Sums, values: list[Poly]) -> Poly:
    return _not(sums, _le(sums, [values[1], values[0]]))


def _eq(sums: Sums, values: list[Poly]) -> Poly:
    return sums.of(Factor(("eq0",), (), (Body(_minus(sums, *values)),)))


def _or(sums: Sums, values: list[Poly]) -> Poly:
    return _not(sums, sums.multiply(_not(sums, values[0]), _not(sums, values[1])))


def _exp(sums: Sums, values: list[Poly]) -> Poly:
    (value,) = values
    return sums.of(Factor(("exp",), (), (Body(value),))) if value else ONE


def _common(sums: Sums, poly: Poly) -> tuple[Poly, Poly]:
    """(E, rest) with the expression equal to exp(E) times the rest.

    E is what all terms have in their exponents that no variable of their sums is in.
    """
    shared: list[tuple[Fraction, Mono]] | None = None
    texts: set[str] | None = None
    for _, mono in poly:
        exponent = next((f.args[0].poly for f in mono.factors if f.head[0] == "exp"), ZERO)
        outer = [(c, m) for c, m in exponent if not _reads(sums, m, mono.bound)]
        named = {f"{c}*{sums.writer.mono(m, {}, 0)}": (c, m) for c, m in outer}
        texts = set(named) if texts is None else texts & set(named)
        shared = [named[t] for t in sorted(texts) if t in named]
    if not shared:
        return ZERO, poly
    common = tuple(shared)
    inverse = _exp(sums, [sums.scale(common, Fraction(-1))])
    return common, sums.multiply(poly, inverse)


def _reads(sums: Sums, mono: Mono, names: tuple[int, ...]) -> bool:
    return bool(reads(sums.space, mono) & set(names))


def _components(sums: Sums, mono: Mono) -> list[Mono]:
    """A term as a product of terms that share no variable of its sum."""
    left: list[tuple[set[int], list[Factor]]] = []
    for factor in mono.factors:
        names, together = reads(sums.space, Mono((factor,))) & set(mono.bound), [factor]
        apart: list[tuple[set[int], list[Factor]]] = []
        for others, factors in left:
            if names & others:
                names, together = names | others, factors + together
            else:
                apart.append((others, factors))
        left = [*apart, (names, together)]
    out: list[Mono] = []
    for names, factors in left:
        bound = tuple(v for v in mono.bound if v in names)
        out.append(Mono(tuple(factors), bound, tuple(r for r in mono.ranges if r[0] in bound)))
    return out


def _reciprocal(sums: Sums, values: list[Poly]) -> Poly:
    common, rest = _common(sums, values[0])
    if not rest:
        return sums.of(Factor(("reciprocal",), (), (Body(rest),)))
    lead = min((sums.writer.mono(m, {}, 0), c) for c, m in rest)[1]
    rest = sums.scale(rest, 1 / lead)
    out = sums.constant(1 / lead)
    parts = (
        [((Fraction(1), m),) for m in _components(sums, rest[0][1])] if len(rest) == 1 else [rest]
    )
    for part in parts:
        out = sums.multiply(out, sums.of(Factor(("reciprocal",), (), (Body(part),))))
    if common:
        out = sums.multiply(out, _exp(sums, [sums.scale(common, Fraction(-1))]))
    return out


def _log(sums: Sums, values: list[Poly]) -> Poly:
    common, rest = _common(sums, values[0])
    inner = ZERO if rest == ONE else sums.of(Factor(("log",), (), (Body(rest),)))
    return sums.add([common, inner])


Law = Callable[[Sums, list[Poly]], Poly]
_LAWS: dict[str, Law] = {
    "exp": _exp,
    "log": _log,
    "reciprocal": _reciprocal,
    "le": _le,
    "lt": _lt,
    "eq": _eq,
    "ne": lambda sums, values: _not(sums, _eq(sums, values)),
    "logical_not": lambda sums, values: _not(sums, values[0]),
    "logical_and": lambda sums, values: sums.multiply(*values),
    "logical_or": _or,
}
