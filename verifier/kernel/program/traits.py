"""What is known of an op besides what it computes: claims for analyses, provers and the refuter.

A claim that a declaration does not make is not believed, so a new op is sound before it is known
well. `tests/laws/test_traits.py` tries each claim on values. The checker reads none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

Bounds = tuple[float, float]
ANY: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Bounded:
    """An application of an op whose operands lie within bounds."""

    args: Sequence[Bounds]
    attrs: Mapping[str, Any]
    shapes: Sequence[tuple[int, ...]]
    """Of the operands."""
    ranks: int
    """How many ranks a collective joins."""
    equal: bool
    """Whether all operands are one value."""
    real: bool
    """Whether the result is of floats."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Every field is a claim; its default claims nothing."""

    # where there is a value
    strict: bool = False
    """A result that is not empty uses every entry of every operand: it has no value where one of
    them has none."""
    needs: Literal["", "positive", "not negative", "not zero", "above -1"] = ""
    """What the last operand must be for there to be a value."""

    # signs, where there is a value
    sign: Literal[0, 1] | None = None
    """Of every entry, whatever the operands are: 1 above 0, 0 not below it."""
    keeps: Literal[0, 1] | None = None
    """Where no operand is below 0 (indices and conditions apart) the result is not: with 1 it is
    above 0 where they all are, unless there are no entries."""

    # dtypes of elementwise ops
    closed: Literal["floats", "integers", "bools"] = "floats"
    """The narrowest values that the op takes to values of their own kind."""
    wraps: bool = False
    """Whether results may not fit in the 8 bits of operands that do."""
    truth: bool = False
    """Whether results are truth values."""

    symmetric: bool = False
    """Whether the order of the operands is of no account."""

    # folds that wait
    folds: frozenset[str] = frozenset()
    """Reductions of whole tensors that it commutes with, all operands reduced alike."""
    rises: tuple[int, ...] = ()
    """Operands that it never falls in as they grow, the others held fixed."""

    # what the refuter asks
    analytic: bool = False
    """Analytic in its operands, or moves them: nothing that enters is lost for all inputs."""
    picks: Literal["", "pair", "zero", "entry"] = ""
    """What it compares to choose its result: its two operands, one of them with 0, or entries."""
    steps: bool = False
    """Constant between jumps: what a field hashes of it says little."""
    adds: bool = False
    """Adds entries up: of ones it counts."""
    literal: str = ""
    """The attribute that is a number."""
    nothing: Fraction | None = None
    """The number with which it changes nothing."""
    index: int | None = None
    """The operand that holds indices."""
    bounds: Callable[[Bounded], Bounds] | None = None
    """Between what its entries lie."""

    # ranks
    meets: str = ""
    """The call in which ranks wait for one another."""
    alias: bool = False
    """The result is the operand, in its storage."""
    levels: bool = False
    """Ranks along its mesh dim get one value."""
    source: str = ""
    """The attribute that names the one coordinate whose value is read."""


NO_TRAITS = Traits()


def _number(value: Fraction | int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


# bounds that several ops share


def hull(*args: Bounds) -> Bounds:
    return min(a for a, _ in args), max(b for _, b in args)


def among(a: Bounded) -> Bounds:
    """Entries of the operands."""
    return hull(*a.args)


def among_or_zero(a: Bounded) -> Bounds:
    """Entries of the first operand, or 0."""
    return hull(a.args[0], (0, 0))


def literal(a: Bounded, name: str = "value") -> Bounds:
    return _number(a.attrs[name]), _number(a.attrs[name])


def always(low: float, high: float) -> Callable[[Bounded], Bounds]:
    return lambda a: (low, high)


def grows(
    function: Callable[[float], float], start: float = -math.inf, least: float = -math.inf
) -> Callable[[Bounded], Bounds]:
    """Of a function that grows from `start` on, where it comes to `least`."""

    def at(x: float) -> float:
        if x <= start or math.isinf(x):
            return least if x < math.inf else math.inf
        try:
            return function(x)
        except OverflowError:
            return math.inf

    return lambda a: (at(a.args[0][0]), at(a.args[0][1]))


def applied(rule: Callable[..., Bounds]) -> Callable[[Bounded], Bounds]:
    """A rule on the bounds of the operands alone."""
    return lambda a: rule(*a.args)


def plus(a: Bounds, b: Bounds) -> Bounds:
    return a[0] + b[0], a[1] + b[1]


def minus(a: Bounds) -> Bounds:
    return -a[1], -a[0]


def times(a: Bounds, b: Bounds) -> Bounds:
    ends = [x * y if x and y else 0.0 for x in a for y in b]
    return min(ends), max(ends)


def counted(a: Bounds, count: int) -> Bounds:
    return (a[0] * count, a[1] * count) if count else (0, 0)


def inverse(a: Bounds) -> Bounds:
    low, high = a
    return (1 / high if high < math.inf else 0, 1 / low) if low > 0 else ANY


def magnitude(a: Bounds) -> Bounds:
    low, high = a
    least = 0 if low <= 0 <= high else min(abs(low), abs(high))
    return least, max(abs(low), abs(high))


def reduced(a: Bounded) -> Bounds:
    """Of collectives that reduce."""
    return counted(a.args[0], a.ranks) if a.attrs["reduce"] == "sum" else a.args[0]
