"""The 64-bit mixer, its inverse, and keys.

The mixer is the output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): xor-shifts and odd
multiplications, so a bijection of 64-bit words. All arithmetic is modulo 2^64.
"""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from shardproof.synthesis.guard.fingerprint.errors import integer

Words = npt.NDArray[np.uint64]

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
M1 = 0xBF58476D1CE4E5B9
M2 = 0x94D049BB133111EB
_M1_INVERSE = pow(M1, -1, 1 << 64)
_M2_INVERSE = pow(M2, -1, 1 << 64)


def fmix(x: int) -> int:
    """The mixer on one word. `fmix(0) == 0`."""
    x &= MASK
    x = (x ^ x >> 30) * M1 & MASK
    x = (x ^ x >> 27) * M2 & MASK
    return x ^ x >> 31


def splitmix64(x: int) -> int:
    """`fmix(x + GOLDEN)`."""
    return fmix(x + GOLDEN)


def key(seed: int, *tags: int | str) -> int:
    """A key from a seed and what it is for: op, step, layer, ranks.

    The tags are mixed in one after another, so that no two of them cancel and their order counts.
    Names are hashed first. Raises FingerprintError where the seed is no integer, or a tag neither
    integer nor name.
    """
    k = splitmix64(integer(seed, "key: the seed"))
    for tag in tags:
        k = splitmix64(
            k ^ (_number(tag) if isinstance(tag, str) else integer(tag, "key: a tag") & MASK)
        )
    return k


def _number(tag: str) -> int:
    return int.from_bytes(hashlib.blake2b(tag.encode(), digest_size=8).digest(), "little")


def fmix_into(x: Words, spare: Words) -> None:
    """`fmix` on every word of `x`, in place. `spare` has its shape and is overwritten."""
    for shift, factor in ((30, M1), (27, M2)):
        np.right_shift(x, np.uint64(shift), out=spare)
        np.bitwise_xor(x, spare, out=x)
        np.multiply(x, np.uint64(factor), out=x)
    np.right_shift(x, np.uint64(31), out=spare)
    np.bitwise_xor(x, spare, out=x)


def unfmix_array(x: npt.NDArray[Any]) -> Words:
    """The inverse of `fmix` on every word."""
    u = np.uint64
    x = x.astype(u)
    x = x ^ x >> u(31) ^ x >> u(62)
    x = x * u(_M2_INVERSE)
    x = x ^ x >> u(27) ^ x >> u(54)
    x = x * u(_M1_INVERSE)
    return x ^ x >> u(30) ^ x >> u(60)
