"""Float64 with the real functions, by name: what a witness is replayed on.

Over a prime field and for Z3 a function is known by its name alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from shardproof.verifier.domains.base import COMPARE, Array, Domain, chosen, is_index, largest

X = TypeVar("X")


class Calculus(Protocol[X]):
    """What functions are defined by, on expressions of any kind."""

    @property
    def one(self) -> X: ...
    def add(self, a: X, b: X, /) -> X: ...
    def sub(self, a: X, b: X, /) -> X: ...
    def mul(self, a: X, b: X, /) -> X: ...
    def neg(self, a: X, /) -> X: ...
    def scale(self, a: X, value: Fraction, /) -> X: ...
    def reciprocal(self, a: X, /) -> X: ...
    def exp(self, a: X, /) -> X: ...
    def log(self, a: X, /) -> X: ...
    def absolute(self, a: X, /) -> X: ...


@dataclass(frozen=True, slots=True)
class Function:
    """A function of one real number."""

    name: str
    floats: Callable[[Any], Any]
    """On arrays of float64."""
    by: Callable[[Calculus[Any], Any], Any] | None = None
    """Its definition, where it is made of others. All expressions are read by it."""
    parity: Literal[-1, 0, 1] = 0
    """1: f(-x) = f(x), -1: f(-x) = -f(x), 0: neither is claimed."""
    strict: bool = False
    """Whether it has no value where its operand has none; else floats may have one."""
    rising: bool = False
    """Whether it never falls."""


FUNCTIONS: dict[str, Function] = {}


def declared(function: Function) -> Function:
    """Raises ValueError where the name is taken."""
    if function.name in FUNCTIONS:
        raise ValueError(f"function {function.name} is declared twice")
    FUNCTIONS[function.name] = function
    return function


def mixed(x: Array) -> Array:
    """splitmix64 (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        z = x + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _bits(a: Array) -> Array:
    return a.astype(np.int64).astype(np.uint64)


LEAST_BEYOND = 2.0**63


class Floats(Domain):
    dtype = np.float64

    def const(self, value: Fraction) -> Array:
        try:
            return np.asarray(float(value))
        except OverflowError:
            return np.asarray(-math.inf if value < 0 else math.inf)

    def _add(self, a: Array, b: Array) -> Array:
        return a + b

    def _mul(self, a: Array, b: Array) -> Array:
        return a * b

    def _neg(self, a: Array) -> Array:
        return -a

    def reciprocal(self, a: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / a)

    def _compare(self, name: str, a: Array, b: Array) -> Array:
        return COMPARE[name](a, b)

    def _maximum(self, a: Array, b: Array) -> Array:
        return np.maximum(a, b)

    def unary(self, name: str, a: Array) -> Array:
        if name.startswith("pow:"):
            exponent = float(Fraction(name[4:]))
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.power(a, exponent)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return np.asarray(FUNCTIONS[name].floats(self.lift(a)), dtype=np.float64)

    def truncate(self, a: Array) -> Array:
        return np.trunc(np.nan_to_num(a)).clip(-(2**53), 2**53).astype(np.int64)

    def matmul(self, a: Array, b: Array) -> Array:
        return np.matmul(a, b)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(a.sum(axis=axes))

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.asarray(rng.standard_normal(shape))

    def amax(self, a: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(a.max(axis=axes))

    def topk_mask(self, a: Array, k: int, axis: int) -> Array:
        return chosen(self.lift(a), k, axis).astype(np.float64)

    def topk_index(self, a: Array, k: int, axis: int) -> Array:
        return largest(self.lift(a), k, axis)

    def dropout_mask(self, p: Fraction, stream: int, seed: Array, index: Array) -> Array:
        key = mixed(mixed(np.uint64(stream) + np.zeros_like(seed, np.uint64)) ^ _bits(seed))
        drawn = mixed(mixed(key ^ _bits(index))) >> np.uint64(11)
        return np.where(drawn.astype(np.float64) * 2.0**-53 >= float(p), float(1 / (1 - p)), 0.0)

    def lift(self, a: Array) -> Array:
        return a.astype(np.float64) if a.dtype != np.float64 else a


class Bounded(Floats):
    """Floats that note whether an integer needed more than 64 bits."""

    exceeded = False

    def _noted(self, of: Callable[[Array, Array], Array], a: Array, b: Array) -> None:
        if is_index(a) and is_index(b):
            wide = np.abs(of(a.astype(np.float64), b.astype(np.float64)))
            self.exceeded |= bool(np.any(wide >= LEAST_BEYOND))

    def add(self, a: Array, b: Array) -> Array:
        self._noted(np.add, a, b)
        return super().add(a, b)

    def sub(self, a: Array, b: Array) -> Array:
        self._noted(np.subtract, a, b)
        return super().sub(a, b)

    def mul(self, a: Array, b: Array) -> Array:
        self._noted(np.multiply, a, b)
        return super().mul(a, b)
