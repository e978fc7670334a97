"""A prime field, with keyed hashes for the nonlinear functions: the cheap refuter.

Two programs that agree over the reals by ring identities and congruence agree here; two that do
not differ with probability at least `1 - degree/p` in each trial (Schwartz 1980, Zippel 1979).
p = 2^31 - 1 keeps products inside 64-bit words; two independent trials are run.
"""

import hashlib
from collections.abc import Collection, Iterable
from fractions import Fraction
from itertools import islice

import numpy as np

from shardproof.verifier.domains.base import Array, Domain, chosen, is_index, largest

P = 2**31 - 1
"""The largest prime of 31 bits."""
SPAN = 10_000
"""How far below that primes are looked for that keep constants apart."""
_LOW = np.uint64(0xFFFF)
_16 = np.uint64(16)


def apart(constants: Iterable[Fraction], count: int) -> tuple[int, ...]:
    """The largest primes in which the constants, 0, 1 and -1 are as many numbers as they are.

    A factor that is 0 in a field hides whatever it multiplies there. Where too few primes keep all
    constants apart the rest are such that do not.
    """
    known = {*constants, Fraction(0), Fraction(1), Fraction(-1)}
    every = [n for n in range(P, P - 40 * count, -2) if is_prime(n)]
    found = islice((n for n in range(P, P - SPAN, -2) if is_prime(n) and _keeps(n, known)), count)
    return (*found, *every)[:count]


def _keeps(prime: int, known: Collection[Fraction]) -> bool:
    if not all(c.denominator % prime for c in known):
        return False
    return len({c.numerator * pow(c.denominator, -1, prime) % prime for c in known}) == len(known)


def is_prime(n: int) -> bool:
    """Of an odd number above 37 and below 2^64 (Miller 1976; Sorenson and Webster 2015)."""
    odd = n - 1
    while odd % 2 == 0:
        odd //= 2
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        power, exponent = pow(base, odd, n), odd
        while power not in (1, n - 1) and exponent < n // 2:
            power, exponent = power * power % n, exponent * 2
        if power != n - 1 and not (power == 1 and exponent == odd):
            return False
    return True


def _mix(x: Array, key: int) -> Array:
    """splitmix64 of a keyed value (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        z = x + np.uint64(key)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class Field(Domain):
    """Elements are uint64 arrays below `prime`. `seed` keys the hashes of nonlinear functions."""

    dtype = np.uint64

    def __init__(self, seed: int = 0, prime: int = P) -> None:
        self.seed, self.prime = seed, prime
        self._p = np.uint64(prime)
        self._keys: dict[str, int] = {}

    def _key(self, name: str) -> int:
        if name not in self._keys:
            digest = hashlib.blake2b(f"{self.seed}:{name}".encode(), digest_size=8).digest()
            self._keys[name] = int.from_bytes(digest, "little")
        return self._keys[name]

    def const(self, value: Fraction) -> Array:
        p = self.prime
        number = value.numerator * pow(value.denominator, -1, p) if value.denominator % p else 0
        return np.asarray(np.uint64(number % p))

    def lift(self, a: Array) -> Array:
        return (a.astype(np.int64) % self.prime).astype(np.uint64) if is_index(a) else a

    def _add(self, a: Array, b: Array) -> Array:
        return np.asarray((a + b) % self._p)

    def _mul(self, a: Array, b: Array) -> Array:
        return np.asarray((a * b) % self._p)

    def _neg(self, a: Array) -> Array:
        return np.asarray((self._p - a) % self._p)

    def reciprocal(self, a: Array) -> Array:
        result = np.ones_like(a)
        base, exponent = a, self.prime - 2
        while exponent:
            if exponent & 1:
                result = self._mul(result, base)
            base = self._mul(base, base)
            exponent >>= 1
        return result

    def _compare(self, name: str, a: Array, b: Array) -> Array:
        if name in ("eq", "ne"):
            return np.equal(a, b) if name == "eq" else np.not_equal(a, b)
        strict = _mix(self._add(a, self._neg(b)), self._key("order")) & np.uint64(1) == 1
        equal = np.equal(a, b)
        below = strict & ~equal
        return {"lt": below, "le": below | equal, "gt": ~below & ~equal, "ge": ~below}[name]

    def _above(self, a: Array, b: Array) -> Array:
        """A keyed total order, so that 0 is not below everything."""
        key = self._key("rank")
        return _mix(a, key) >= _mix(b, key)

    def _maximum(self, a: Array, b: Array) -> Array:
        return np.where(self._above(a, b), a, b)

    def minimum(self, a: Array, b: Array) -> Array:
        if is_index(a) and is_index(b):
            return np.minimum(a, b)
        a, b = self.lift(a), self.lift(b)
        return np.where(self._above(a, b), b, a)

    def topk_mask(self, a: Array, k: int, axis: int) -> Array:
        """The k largest by the keyed order: true zeros and ones, so that counts of them count."""
        return chosen(_mix(self.lift(a), self._key("rank")), k, axis).astype(np.uint64)

    def topk_index(self, a: Array, k: int, axis: int) -> Array:
        return largest(_mix(self.lift(a), self._key("rank")), k, axis)

    def unary(self, name: str, a: Array) -> Array:
        a = self.lift(a)
        if name.startswith("pow:"):
            exponent = Fraction(name[4:])
            if exponent.denominator == 1:
                return self._power(a, int(exponent))
        return np.asarray(_mix(a, self._key(name)) % self._p)

    def _power(self, a: Array, exponent: int) -> Array:
        base = a if exponent >= 0 else self.reciprocal(a)
        result, left = np.ones_like(a), abs(exponent)
        while left:
            if left & 1:
                result = self._mul(result, base)
            base = self._mul(base, base)
            left >>= 1
        return result

    def truncate(self, a: Array) -> Array:
        return (_mix(a, self._key("truncate")) % np.uint64(4)).astype(np.int64)

    def matmul(self, a: Array, b: Array) -> Array:
        high, low = a >> _16, a & _LOW
        top = np.matmul(high, b) % self._p
        return np.asarray(((top << _16) + np.matmul(low, b)) % self._p)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(a.sum(axis=axes, dtype=np.uint64) % self._p)

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.integers(self.prime, size=shape, dtype=np.uint64)
