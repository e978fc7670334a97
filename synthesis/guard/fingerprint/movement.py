"""Fingerprints of data that moves and of places that are claimed; colors that tell their place.

A fingerprint of a tensor is the sum of one term per word modulo 2^64, so fingerprints of pieces add
up to that of the whole, in any order, and a part is taken out by subtraction. XOR would combine as
well, but a set of equal terms vanishes in pairs under it: a shard that arrives twice, or twice not
at all, could go unseen. A sum keeps how often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from operator import index
from typing import Any, cast

import numpy as np

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, expect, integer
from shardproof.synthesis.guard.fingerprint.mix import GOLDEN, MASK, Words, fmix_into, unfmix_array
from shardproof.synthesis.guard.fingerprint.partition import TensorPartition
from shardproof.synthesis.guard.fingerprint.region import (
    BLOCK,
    Array,
    Region,
    Runs,
    checked,
    dtype_of,
    raw_words,
    word_bytes,
)


@dataclass(frozen=True, slots=True)
class Fp:
    """The fingerprint of a piece, or of several pieces together (`+`, `-`, `sum`)."""

    value: int
    count: int
    """Bytes for data, elements for coverage."""
    key: int
    width: int
    """Bytes of a word; 0 for coverage."""

    def _with(self, other: Fp, sign: int) -> Fp:
        if not isinstance(other, Fp):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        if (self.key, self.width) != (other.key, other.width):
            raise FingerprintError(
                f"{self} and {other} do not combine: they were taken with different keys, or in "
                "words of different sizes (say the width of `common_width` to both)"
            )
        value, count = self.value + sign * other.value, self.count + sign * other.count
        return Fp(value & MASK, count, self.key, self.width)

    def __add__(self, other: Fp) -> Fp:
        return self._with(other, 1)

    def __radd__(self, other: int) -> Fp:
        return self if other == 0 else NotImplemented

    def __sub__(self, other: Fp) -> Fp:
        return self._with(other, -1)

    def __xor__(self, other: object) -> Fp:
        raise FingerprintError(
            "fingerprints combine by + and a part is taken out by -; under XOR a piece that comes "
            "twice would vanish"
        )

    def __str__(self) -> str:
        return f"{self.value:016x} of {self.count} {'bytes' if self.width else 'places'}"

    def to_json(self) -> dict[str, int | str]:
        """As hexadecimal, since JSON readers lose digits of large integers."""
        return {
            "value": f"{self.value:016x}",
            "count": self.count,
            "key": f"{self.key:016x}",
            "width": self.width,
        }

    @classmethod
    def from_json(cls, data: object) -> Fp:
        """Raises FingerprintError where it is not what `to_json` writes."""
        try:
            fields = cast("dict[str, Any]", data)
            value, key = (int(fields[name], 16) for name in ("value", "key"))
            count, width = (index(fields[name]) for name in ("count", "width"))
            if not (0 <= value <= MASK and 0 <= key <= MASK and count >= 0 and 0 <= width <= 8):
                raise ValueError
        except (TypeError, KeyError, ValueError):
            raise FingerprintError(
                f"a reported fingerprint: expected value, count, key and width, got {data!r:.80}"
            ) from None
        return cls(value, count, key, width)


def total(fps: Iterable[Fp]) -> Fp:
    """The fingerprint of all pieces together. Raises FingerprintError where there are none."""
    result: Fp | None = None
    for fp in fps:
        expect(fp, Fp, "expected a fingerprint")
        result = fp if result is None else result + fp
    if result is None:
        raise FingerprintError("the fingerprint of no pieces has no key; give at least one")
    return result


def common_width(
    pieces: Iterable[TensorPartition | Region], itemsize: int, shape: tuple[int, ...] | None = None
) -> int:
    """The word size in which all pieces of a tensor (of this global shape) can be read."""
    regions: list[Region] = []
    for piece in pieces:
        if isinstance(piece, Region) or shape is None:
            regions.append(_region(piece, "common_width"))
        else:
            regions.append(piece.of_whole(shape))
    return word_bytes(regions, itemsize)


def _region(where: TensorPartition | Region, op: str) -> Region:
    if isinstance(where, Region):
        return where
    expect(where, TensorPartition, f"{op}: expected a TensorPartition or a Region")
    return where.region()


def reading(
    shape: tuple[int, ...],
    itemsize: int,
    where: TensorPartition | Region | None,
    width: int | None = None,
) -> tuple[Runs, int]:
    """The words of a piece, as runs of indices, and their size: `width`, or what all shards of the
    partition share. Raises FingerprintError where shape or width do not fit the piece."""
    pieces: list[Region] = []
    if where is None:
        region = Region.whole(shape)
    elif isinstance(where, TensorPartition):
        region = where.region(shape)
        pieces = [p.of_whole(region.global_shape) for p in where.extremes()]
    else:
        region = _region(where, "fingerprint")
    if region.shape != shape:
        raise FingerprintError(
            f"data of shape {list(shape)} for a region of shape {list(region.shape)}"
        )
    if width is None:
        width = word_bytes(pieces or [region], itemsize)
    elif width not in (8, min(itemsize, 8)) or (
        width > itemsize and word_bytes([region], itemsize) != width
    ):
        raise FingerprintError(
            f"{itemsize}-byte elements of this region cannot be read in words of {width} bytes: "
            "another dtype was hashed before, or give all pieces width=common_width(...)"
        )
    return region.runs().words(itemsize, width), width


def hash_words(words: Array, runs: Runs, key: int) -> int:
    """The sum over words w at index g of fmix(w ^ fmix(g * GOLDEN + key)), modulo 2^64."""
    spare = np.empty(min(len(words), BLOCK), np.uint64)
    value = 0
    for place, salt in runs.blocks(GOLDEN, key):
        part = spare[: len(salt)]
        fmix_into(salt, part)
        if words.itemsize == 8:
            np.bitwise_xor(salt, words[place], out=salt)
        else:
            np.copyto(part, words[place])
            np.bitwise_xor(salt, part, out=salt)
        fmix_into(salt, part)
        value += int(salt.sum(dtype=np.uint64))
    return value & MASK


def fingerprint(
    data: Array,
    where: TensorPartition | Region | None = None,
    key: int = 0,
    *,
    width: int | None = None,
) -> Fp:
    """The movement hash of a piece of a tensor: of its raw bits, salted with global indices.

        F = sum over words w at index g of fmix(w ^ fmix(g * GOLDEN + key))   modulo 2^64

    `where` says which piece of the global tensor it is (all of it by default). A word is 8 bytes
    where all shards of the partition allow it, else one element; `width` says it outright (see
    `common_width`) where pieces of different partitions are compared.

    Sees, with certainty: any change inside one word, since `fmix` is a bijection. Any other fixed
    change of bits or places (swapped, dropped, duplicated, stale or shifted pieces, the wrong dim)
    is missed with a chance of 2^-64 if the mixer is taken for a random function. -0 and 0, and
    every NaN, are told apart: bits are compared, so there are no false alarms.

    Zeros after the end change the number of bytes, which is part of the fingerprint.

    Does not see: a wrong value that was computed before the hash; a change that is the same in all
    pieces that are compared; the same bits under another shape or dtype (see `descriptor`); an
    adversary, who can find collisions for a key that he knows.

    Raises:
        FingerprintError: a dtype without fixed bits, a shape that is not that of the piece, or a
            key that is no integer.
    """
    data, key = checked(data, "fingerprint"), integer(key, "fingerprint: the key")
    runs, width = reading(data.shape, data.dtype.itemsize, where, width)
    return Fp(hash_words(raw_words(data, width), runs, key), data.nbytes, key & MASK, width)


def coverage(where: TensorPartition | Region, key: int = 0) -> Fp:
    """A fingerprint of the places that a rank claims: the sum of splitmix64(key ^ splitmix64(g)).

    It reads no data, so that of the whole tensor is known before anything runs, and the claims of
    all ranks must add up to it.

    Sees: places that nobody claims, or two ranks, whatever the partition (missed: 2^-64).
    Does not see: anything about the data.
    """
    region, key, value = _region(where, "coverage"), integer(key, "coverage: the key"), 0
    for _, g in region.runs().blocks():
        _colors_into(g, key)
        value += int(g.sum(dtype=np.uint64))
    return Fp(value & MASK, region.count, key & MASK, 0)


def _colors_into(g: Words, key: int) -> None:
    spare = np.empty_like(g)
    g += np.uint64(GOLDEN)
    fmix_into(g, spare)
    g ^= np.uint64(key & MASK)
    g += np.uint64(GOLDEN)
    fmix_into(g, spare)


def colors(
    where: TensorPartition | Region, key: int, dtype: np.dtype | str, *, width: int | None = None
) -> Array:
    """A payload that tells its place: word g holds splitmix64(key ^ splitmix64(g)).

    In words of 8 bytes `decode` gets g back; narrower words hold the low bits, and are compared
    only. The bits of float dtypes may be those of NaNs; they are to be moved, not computed with.
    """
    kind, key = dtype_of(dtype, "colors"), integer(key, "colors: the key")
    region = _region(where, "colors")
    if width is None:
        pieces = [region] if isinstance(where, Region) else where.extremes()
        width = common_width(pieces, kind.itemsize)
    runs = region.runs().words(kind.itemsize, width)
    words = np.empty(len(runs.bases) * runs.length, f"u{width}")
    for place, g in runs.blocks():
        _colors_into(g, key)
        words[place] = g.astype(words.dtype)
    if kind.kind == "b":
        words &= 0x0101010101010101 & (1 << 8 * width) - 1
    return words.view(np.uint8)[: region.count * kind.itemsize].view(kind).reshape(region.shape)


def decode(words: Array, key: int) -> Words:
    """The index g that each 8-byte color came from; some index of no element where it is none."""
    g = unfmix_array(raw_words(words, 8)) - np.uint64(GOLDEN)
    return unfmix_array(g ^ np.uint64(key & MASK)) - np.uint64(GOLDEN)


def sources(words: Array, key: int, shape: tuple[int, ...]) -> tuple[int, int] | None:
    """First and one past the last row-major element that the colors in `words` came from, or None
    where any of them is no color of a tensor of this shape."""
    g = decode(words, key)
    per_word = max(1, 8 // words.dtype.itemsize)
    end = -(-prod(shape) // per_word)
    if not g.size or np.any(g >= np.uint64(end)):
        return None
    return int(g.min()) * per_word, min(prod(shape), (int(g.max()) + 1) * per_word)
