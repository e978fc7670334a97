"""Between what the entries of results lie, from bounds of the operands."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

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


def _number(value: Fraction | int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


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
