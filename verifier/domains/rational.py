"""A prime field of 61 bits in which rational functions have values, and nothing else has."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from verifier.domains.base import Array, Domain, is_index
from verifier.domains.field import is_prime

BITS = 61


class NotRationalError(TypeError):
    """An op that is no rational function, or a division by 0."""


def primes(seed: str, count: int) -> tuple[int, ...]:
    """Random primes of 61 bits, other ones for every seed."""
    rng, out = random.Random(seed), set[int]()
    while len(out) < count:
        number = rng.getrandbits(BITS) | 1 | 1 << (BITS - 1)
        if is_prime(number):
            out.add(number)
    return tuple(sorted(out))


class Rational(Domain):
    """Elements are integers below `prime`, in arrays of objects. Raises NotRationalError."""

    dtype = object

    def __init__(self, prime: int) -> None:
        self.prime = prime
        inverted: Callable[[Array], Any] = np.frompyfunc(self._inverse, 1, 1)
        self._inverses = inverted

    def _inverse(self, a: int) -> int:
        if not a % self.prime:
            raise NotRationalError("a division by 0")
        return pow(a, -1, self.prime)

    def _held(self, a: object) -> Array:
        return np.asarray(np.asarray(a, dtype=object) % self.prime, dtype=object)

    def const(self, value: Fraction) -> Array:
        return self._held(value.numerator * self._inverse(value.denominator))

    def lift(self, a: Array) -> Array:
        return self._held(a.astype(int).astype(object)) if is_index(a) else a

    def _add(self, a: Array, b: Array) -> Array:
        return self._held(a + b)

    def _mul(self, a: Array, b: Array) -> Array:
        return self._held(a * b)

    def _neg(self, a: Array) -> Array:
        return self._held(-a)

    def reciprocal(self, a: Array) -> Array:
        return self._held(self._inverses(a))

    def _compare(self, name: str, a: Array, b: Array) -> Array:
        raise NotRationalError(name)

    def _maximum(self, a: Array, b: Array) -> Array:
        raise NotRationalError("maximum")

    def truncate(self, a: Array) -> Array:
        raise NotRationalError("truncate")

    def unary(self, name: str, a: Array) -> Array:
        if not name.startswith("pow:") or Fraction(name[4:]).denominator != 1:
            raise NotRationalError(name)
        exponent = int(name[4:])
        base, out = self.lift(a) if exponent >= 0 else self.reciprocal(self.lift(a)), self._held(1)
        for _ in range(abs(exponent)):
            out = self._mul(out, base)
        return out

    def matmul(self, a: Array, b: Array) -> Array:
        return self._held(np.matmul(a, b))

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        return self._held(a.sum(axis=axes))

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return self._held(rng.integers(self.prime, size=shape).astype(object))
