"""Functions of expressions, and the laws of those that have some."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from shardproof.verifier.domains.floats import FUNCTIONS
from shardproof.verifier.kernel.program.registry import traits
from shardproof.verifier.provers.canonical.affine import INDICATORS, affine, comparison
from shardproof.verifier.provers.canonical.form import (
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
from shardproof.verifier.provers.canonical.signs import denominators, exponential, positive
from shardproof.verifier.provers.canonical.sums import Sums

MAX_BOXES = 16
WHOLE = frozenset({"logical_not", "logical_and", "logical_or", "where"})
"""Functions that are written as products and sums of masks as they are."""
Box = tuple[tuple[int, int, int], ...]


def apply(
    sums: Sums, head: tuple[Any, ...], values: Sequence[Poly], at: tuple[Index, ...] = ()
) -> Poly:
    """A function of values, one for each box on which these are given by one expression."""
    boxes = _boxes(sums, values)
    out: list[Poly] = []
    for box in boxes:
        inside = [_inside(sums, v, box) for v in values]
        made = _by_cases(sums, head, inside, at)
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


def _by_cases(
    sums: Sums, head: tuple[Any, ...], values: Sequence[Poly], at: tuple[Index, ...], left: int = 3
) -> Poly:
    """A function of values that depend on a mask: where it holds, and where it does not.

    Only where the function is finite for all values: what is masked away must be.
    """
    mask = _mask(sums, values) if left and not (traits(head[0]).needs or head[0] in WHOLE) else None
    if mask is None:
        return _applied(sums, head, values, at)
    text = sums.writer.factor(mask, {}, 0)
    try:
        there = [_set(sums, v, text, True) for v in values]
        holds = sums.of(mask)
        out = sums.multiply(holds, _by_cases(sums, head, there, at, left - 1))
        gone = [_set(sums, v, text, False) for v in values]
        other = _by_cases(sums, head, gone, at, left - 1)
        return sums.add([out, sums.multiply(_not(sums, holds), other)])
    except UnclearError:
        return _applied(sums, head, values, at)


def _mask(sums: Sums, values: Sequence[Poly]) -> Factor | None:
    """A factor of some term of the values that is 0 or 1, outside of sums."""
    for poly in values:
        for _, mono in poly:
            for f in mono.factors:
                if f.head[0] in INDICATORS and not _reads(sums, Mono((f,)), mono.bound):
                    return f
    return None


def _set(sums: Sums, poly: Poly, text: str, holds: bool) -> Poly:
    """An expression where a mask holds, or where it does not."""
    out: list[tuple[Fraction, Mono]] = []
    for coef, mono in poly:
        kept = tuple(f for f in mono.factors if not _is(sums, f, text, mono))
        if holds or len(kept) == len(mono.factors):
            out.append((coef, Mono(kept, mono.bound, mono.ranges)))
    return sums.collected(out)


def _is(sums: Sums, factor: Factor, text: str, mono: Mono) -> bool:
    if factor.head[0] not in INDICATORS or _reads(sums, Mono((factor,)), mono.bound):
        return False
    return sums.writer.factor(factor, {}, 0) == text


def _applied(
    sums: Sums, head: tuple[Any, ...], values: Sequence[Poly], at: tuple[Index, ...]
) -> Poly:
    if head == ("hot",):
        row = sums.of(Factor(("ramp",), (Index(0, at[0].steps),)))
        steps = affine(sums.space, _minus(sums, row, values[0]))
        if steps is not None:
            made = comparison("level", (steps[0] + at[0].offset, steps[1]))
            return sums.of(made) if isinstance(made, Factor) else sums.constant(Fraction(int(made)))
    law, known = _LAWS.get(head[0]), FUNCTIONS.get(head[0])
    if law is not None and len(head) == 1:
        return law(sums, list(values))
    if known is not None and known.by is not None and len(head) == 1:
        return known.by(_Calculus(sums), values[0])
    return sums.of(Factor(head, at, tuple(map(Body, values))))


def _minus(sums: Sums, a: Poly, b: Poly) -> Poly:
    return sums.add([a, sums.scale(b, Fraction(-1))])


def _not(sums: Sums, value: Poly) -> Poly:
    return _minus(sums, ONE, value)


def apart(sums: Sums, poly: Poly, names: tuple[int, ...]) -> tuple[Poly, Poly]:
    """What of an expression depends on some variables, and what does not."""
    names = sums.space.digits(names)
    moving = tuple((c, m) for c, m in poly if _reads(sums, m, names))
    return moving, tuple((c, m) for c, m in poly if not _reads(sums, m, names))


def mask_of(sums: Sums, poly: Poly) -> tuple[Poly, bool] | None:
    """V of an expression that is 1 where V <= 0, or where V > 0 (then True), and 0 elsewhere."""
    rest = [(c, m) for c, m in poly if m != Mono()]
    constant = sum((c for c, m in poly if m == Mono()), Fraction(0))
    if len(rest) != 1 or (rest[0][0], constant) not in ((1, 0), (-1, 1)):
        return None
    mono = rest[0][1]
    if mono.bound or mono.ranges or len(mono.factors) != 1 or mono.factors[0].head != ("le0",):
        return None
    return mono.factors[0].args[0].poly, constant == 1


def _compared(sums: Sums, head: str, value: Poly) -> Poly:
    """1 where a value is at most 0 (`le0`), or 0 (`eq0`); of indices alone as one of these."""
    split = affine(sums.space, value)
    if split is None:
        return sums.of(Factor((head,), (), (Body(value),)))
    made = comparison("below" if head == "le0" else "level", split)
    return sums.of(made) if isinstance(made, Factor) else sums.constant(Fraction(int(made)))


def _le(sums: Sums, values: list[Poly]) -> Poly:
    return _compared(sums, "le0", _minus(sums, *values))


def _lt(sums: Sums, values: list[Poly]) -> Poly:
    return _not(sums, _le(sums, [values[1], values[0]]))


def _eq(sums: Sums, values: list[Poly]) -> Poly:
    return _compared(sums, "eq0", _minus(sums, *values))


def _or(sums: Sums, values: list[Poly]) -> Poly:
    return _not(sums, sums.multiply(_not(sums, values[0]), _not(sums, values[1])))


def _exp(sums: Sums, values: list[Poly]) -> Poly:
    (value,) = values
    if not value:
        return ONE
    made = exponential(sums, value, lambda base: _reciprocal(sums, [base]))
    return sums.of(Factor(("exp",), (), (Body(value),))) if made is None else made


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


def _reciprocal(sums: Sums, values: list[Poly]) -> Poly:
    common, rest = _common(sums, values[0])
    if not rest:
        return sums.of(Factor(("reciprocal",), (), (Body(rest),)))
    for under in denominators(sums, rest):
        above = _reciprocal(sums, [sums.multiply(rest, under)])
        return sums.multiply(sums.multiply(above, under), _exp(sums, [_minus(sums, ZERO, common)]))
    lead = min((sums.writer.mono(m, {}, 0), c) for c, m in rest)[1]
    rest = sums.scale(rest, 1 / lead)
    out = sums.constant(1 / lead)
    parts = [((Fraction(1), m),) for m in sums.components(rest[0][1])] if len(rest) == 1 else [rest]
    for part in parts:
        out = sums.multiply(out, sums.of(Factor(("reciprocal",), (), (Body(part),))))
    if common:
        out = sums.multiply(out, _exp(sums, [sums.scale(common, Fraction(-1))]))
    return out


def _log(sums: Sums, values: list[Poly]) -> Poly:
    common, rest = _common(sums, values[0])
    for under in denominators(sums, rest):
        above = sums.multiply(rest, under)
        if positive(sums.space, above):
            return sums.add([common, _minus(sums, _log(sums, [above]), _log(sums, [under]))])
    inner = ZERO if rest == ONE else sums.of(Factor(("log",), (), (Body(rest),)))
    return sums.add([common, inner])


def _true(sums: Sums, values: list[Poly]) -> Poly:
    """1 where a value is not 0: of a constant a number."""
    (value,) = values
    if all(m == Mono() for _, m in value):
        return ONE if sum(c for c, _ in value) else ZERO
    return sums.of(Factor(("true",), (), (Body(value),)))


class _Calculus:
    """The words in which functions are defined, on expressions of one table."""

    one = ONE

    def __init__(self, sums: Sums) -> None:
        self.sums = sums

    def add(self, a: Poly, b: Poly) -> Poly:
        return self.sums.add([a, b])

    def sub(self, a: Poly, b: Poly) -> Poly:
        return _minus(self.sums, a, b)

    def mul(self, a: Poly, b: Poly) -> Poly:
        return self.sums.multiply(a, b)

    def neg(self, a: Poly) -> Poly:
        return _minus(self.sums, ZERO, a)

    def scale(self, a: Poly, value: Fraction) -> Poly:
        return self.sums.scale(a, value)

    def reciprocal(self, a: Poly) -> Poly:
        return _reciprocal(self.sums, [a])

    def exp(self, a: Poly) -> Poly:
        return _exp(self.sums, [a])

    def log(self, a: Poly) -> Poly:
        return _log(self.sums, [a])

    def absolute(self, a: Poly) -> Poly:
        return self.sums.of(Factor(("abs",), (), (Body(a),)))


Law = Callable[[Sums, list[Poly]], Poly]
_LAWS: dict[str, Law] = {
    "exp": _exp,
    "log": _log,
    "reciprocal": _reciprocal,
    "le": _le,
    "lt": _lt,
    "eq": _eq,
    "ne": lambda sums, values: _not(sums, _eq(sums, values)),
    "true": _true,
    "logical_not": lambda sums, values: _not(sums, values[0]),
    "logical_and": lambda sums, values: sums.multiply(values[0], values[1]),
    "logical_or": _or,
}
