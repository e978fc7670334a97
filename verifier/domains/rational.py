"""Prime fields of 61 bits in which rational functions have values, and nothing else has."""

import random
from fractions import Fraction

import numpy as np

from shardproof.verifier.domains.base import Array, is_index
from shardproof.verifier.domains.field import Field, is_prime


class NotRationalError(TypeError):
    """An op that is no rational function, or a division by 0."""


def primes(seed: str, count: int) -> tuple[int, ...]:
    """Random primes of 61 bits, other ones for every seed."""
    rng, out = random.Random(seed), set[int]()
    while len(out) < count:
        number = rng.getrandbits(61) | 1 | 1 << 60
        out |= {number} if is_prime(number) else set()
    return tuple(sorted(out))


class Rational(Field):
    """Elements are integers below `prime`, in arrays of objects. Raises NotRationalError."""

    dtype = object

    def __init__(self, prime: int) -> None:
        super().__init__(0, prime)

    def _held(self, a: object) -> Array:
        """An array of objects, where numpy makes a number of one that has no dims."""
        return np.asarray(np.asarray(a, dtype=object) % self.prime, dtype=object)

    def const(self, value: Fraction) -> Array:
        return self._held(value.numerator * pow(value.denominator, -1, self.prime))

    def lift(self, a: Array) -> Array:
        return self._held(a.astype(int)) if is_index(a) else a

    def _add(self, a: Array, b: Array) -> Array:
        return self._held(a + b)

    def _mul(self, a: Array, b: Array) -> Array:
        return self._held(a * b)

    def _neg(self, a: Array) -> Array:
        return self._held(-a)

    def reciprocal(self, a: Array) -> Array:
        if not np.all(a):
            raise NotRationalError("a division by 0")
        return self._power(a, self.prime - 2)

    def _compare(self, name: str, a: Array, b: Array) -> Array:
        raise NotRationalError(name)

    def _above(self, a: Array, b: Array) -> Array:
        raise NotRationalError("a choice")

    def truncate(self, a: Array) -> Array:
        raise NotRationalError("truncate")

    def topk_mask(self, a: Array, k: int, axis: int) -> Array:
        raise NotRationalError("a choice")

    def topk_index(self, a: Array, k: int, axis: int) -> Array:
        raise NotRationalError("a choice")

    def unary(self, name: str, a: Array) -> Array:
        if not name.startswith("pow:") or Fraction(name[4:]).denominator != 1:
            raise NotRationalError(name)
        return self._power(self.lift(a), int(name[4:]))

    def matmul(self, a: Array, b: Array) -> Array:
        return self._held(np.matmul(a, b))

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        return self._held(a.sum(axis=axes))

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.integers(self.prime, size=shape).astype(object)
