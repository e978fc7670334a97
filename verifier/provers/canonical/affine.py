"""Comparisons of indices: 1 or 0 by where an entry stands, whatever the inputs are.

`below` is 1 where an affine function of indices is at most 0, `level` where it is 0. Of one index
alone they are a range of it; in a term whose indices keep them true, or false, they are 1, or 0.
An indicator of a row says what an integer is, and comparisons of that integer are of the row.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from shardproof.verifier.provers.canonical.form import Body, Factor, Index, Mono, Poly, Space

AFFINE = frozenset({"below", "level"})
INDICATORS = frozenset({"le0", "eq0", "hot", "true", *AFFINE})
"""Factors that are 0 or 1."""
Ranges = Mapping[int, tuple[int, int]]
Split = tuple[Fraction, dict[int, Fraction]]


@dataclass(frozen=True, slots=True)
class Decided:
    """What is known of a comparison in a term: a number, or ranges that say the same."""

    value: int | None = None
    ranges: tuple[tuple[int, int, int], ...] = ()


def affine(space: Space, poly: Poly) -> Split | None:
    """The constant and the steps of an affine function of indices; None of anything else."""
    constant, steps = Fraction(0), dict[int, Fraction]()
    for coef, mono in poly:
        if mono.bound or mono.ranges or len(mono.factors) > 1:
            return None
        if not mono.factors:
            constant += coef
            continue
        (factor,) = mono.factors
        if factor.head != ("ramp",):
            return None
        (place,) = factor.places
        constant += coef * place.offset
        for v, n in space.steps(place):
            steps[v] = steps.get(v, Fraction(0)) + coef * n
    return constant, {v: n for v, n in steps.items() if n}


def comparison(head: str, split: Split) -> Factor | bool:
    """The factor of `function <= 0` (`below`) or `function = 0` (`level`), or its value."""
    constant, steps = split
    if not steps:
        return constant <= 0 if head == "below" else constant == 0
    by = math.lcm(constant.denominator, *(n.denominator for n in steps.values()))
    whole = {v: int(n * by) for v, n in steps.items()}
    offset = int(constant * by)
    common = math.gcd(*whole.values())
    if head == "level" and offset % common:
        return False
    offset = -(-offset // common)
    return Factor((head,), (Index(offset, tuple((v, n // common) for v, n in whole.items())),))


def reduced(space: Space, factor: Factor) -> Factor | bool:
    """A comparison with each index once and without a common step."""
    (place,) = factor.places
    steps: dict[int, Fraction] = {}
    for v, n in space.steps(place):
        steps[v] = steps.get(v, Fraction(0)) + n
    split = Fraction(place.offset), {v: n for v, n in steps.items() if n}
    return comparison(factor.head[0], split)


def decided(space: Space, factor: Factor, ranges: Ranges) -> Decided:
    """What a comparison is where its indices are in these ranges."""
    (place,) = factor.places
    steps, low, high = space.steps(place), place.offset, place.offset
    limits = {v: ranges.get(v, (0, space.extents[v])) for v, _ in steps}
    for v, n in steps:
        first, last = limits[v][0], limits[v][1] - 1
        low, high = low + min(n * first, n * last), high + max(n * first, n * last)
    if factor.head[0] == "below":
        if high <= 0 or low > 0:
            return Decided(int(high <= 0))
        return _half(space, place) if len(steps) == 1 else Decided()
    if low > 0 or high < 0:
        return Decided(0)
    return _point(space, place)


def _half(space: Space, place: Index) -> Decided:
    """The range of the one index of a comparison."""
    ((v, n),) = space.steps(place)
    if n > 0:
        return Decided(None, ((v, 0, -place.offset // n + 1),))
    return Decided(None, ((v, -(place.offset // n), space.extents[v]),))


def _point(space: Space, place: Index) -> Decided:
    """The one value of each index, where the steps are those of digits of a number."""
    steps = sorted(space.steps(place), key=lambda item: -abs(item[1]))
    sign = 1 if steps[0][1] > 0 else -1
    if any(n * sign < 0 for _, n in steps):
        return Decided()
    left, found = -sign * place.offset, list[tuple[int, int, int]]()
    for at, (v, n) in enumerate(steps):
        inner = sum((space.extents[w] - 1) * sign * m for w, m in steps[at + 1 :])
        if inner >= n * sign:
            return Decided()
        digit, left = divmod(left, n * sign)
        if not 0 <= digit < space.extents[v]:
            return Decided(0)
        found.append((v, digit, digit + 1))
    return Decided(0) if left else Decided(None, tuple(found))


def told(space: Space, hot: Factor, other: Factor) -> Factor | bool | None:
    """A comparison of the integer that an indicator says is its row, as one of the row.

    None where it compares something else.
    """
    (row,), (known,), (asked,) = hot.places, hot.args, other.args
    if known.own or asked.own:
        return None
    base, start = _parts(known)
    value, constant = _parts(asked)
    if not base or len(value) != len(base):
        return None
    first = next((c for c, m in base if m == value[0][1]), Fraction(0))
    by = value[0][0] / first if first else Fraction(0)
    if {(c, m) for c, m in value} != {(c * by, m) for c, m in base}:
        return None
    steps: dict[int, Fraction] = {}
    for v, n in space.steps(row):
        steps[v] = steps.get(v, Fraction(0)) + by * n
    head = "below" if other.head[0] == "le0" else "level"
    return comparison(head, (constant + by * (row.offset - start), steps))


def _parts(body: Body) -> tuple[list[tuple[Fraction, Mono]], Fraction]:
    """What of an expression is no constant, and the constant."""
    rest = [(c, m) for c, m in body.poly if m != Mono()]
    return rest, sum((c for c, m in body.poly if m == Mono()), Fraction(0))
