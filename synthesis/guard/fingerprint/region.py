"""Where a piece sits in the global tensor, and how its bytes are read as words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError
from shardproof.synthesis.guard.fingerprint.mix import GOLDEN, MASK, Words

Array = npt.NDArray[Any]
BLOCK = 1 << 15
"""Words hashed at a time: four buffers of this size stay in the second-level cache."""
_RAMP: Words = np.arange(BLOCK, dtype=np.uint64)
_GOLDEN_RAMP: Words = _RAMP * np.uint64(GOLDEN)


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a global tensor: `shape` elements from `start` on, in every dim."""

    global_shape: tuple[int, ...]
    start: tuple[int, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        fits = len(self.global_shape) == len(self.start) == len(self.shape) and all(
            min(s, n) >= 0 and s + n <= g
            for g, s, n in zip(self.global_shape, self.start, self.shape, strict=True)
        )
        if not fits:
            raise FingerprintError(
                f"region {list(self.shape)} at {list(self.start)} does not lie in a tensor of "
                f"shape {list(self.global_shape)}"
            )

    @classmethod
    def whole(cls, shape: Iterable[int]) -> Region:
        """All of a tensor."""
        shape = tuple(shape)
        return cls(shape, (0,) * len(shape), shape)

    @property
    def count(self) -> int:
        """How many elements."""
        return prod(self.shape)

    @property
    def bounds(self) -> tuple[int, int]:
        """First and one past the last row-major index that it holds (others may lie between)."""
        if not self.count:
            return 0, 0
        first = last = 0
        for size, start, n in zip(self.global_shape, self.start, self.shape, strict=True):
            first, last = first * size + start, last * size + start + n - 1
        return first, last + 1

    def cut(self, whole: Array) -> Array:
        """This box of an array of the global shape."""
        return whole[tuple(slice(s, s + n) for s, n in zip(self.start, self.shape, strict=True))]

    def runs(self) -> Runs:
        """The box as runs of consecutive row-major indices."""
        if not self.count:
            return Runs(np.zeros(0, np.uint64), 0)
        inner = self.inner
        length = prod(self.shape[inner:])
        base = np.zeros(1, np.uint64)
        for d, size in enumerate(self.global_shape):
            n = self.shape[d] if d < inner else 1
            at = np.arange(self.start[d], self.start[d] + n, dtype=np.uint64)
            base = (base[:, None] * np.uint64(size) + at[None, :]).reshape(-1)
        return Runs(base, length)

    @property
    def inner(self) -> int:
        """The dim from which on the elements of a run lie side by side."""
        dims = range(len(self.shape))[::-1]
        return next((d for d in dims if self.shape[d] != self.global_shape[d]), 0)


@dataclass(frozen=True)
class Runs:
    """`length` consecutive indices from each of `bases`."""

    bases: Words
    length: int

    def words(self, numerator: int, denominator: int) -> Runs:
        """The same bytes in words: `numerator` words for `denominator` elements."""
        if numerator == denominator:
            return self
        bases = self.bases * np.uint64(numerator) // np.uint64(denominator)
        return Runs(bases, -(-self.length * numerator // denominator))

    def blocks(self, factor: int = 1, offset: int = 0) -> Iterator[tuple[slice, Words]]:
        """Blocks of at most `BLOCK` indices g, each as `g * factor + offset` in a buffer that the
        next block reuses, with the place of the block in the flattened piece. `factor` is 1 or
        GOLDEN."""
        ramp = _RAMP if factor == 1 else _GOLDEN_RAMP
        starts = self.bases * np.uint64(factor) + np.uint64(offset & MASK)
        out = np.empty(min(BLOCK, len(self.bases) * self.length), np.uint64)
        if self.length >= BLOCK or len(starts) == 1:
            for row, start in enumerate(starts):
                for at in range(0, self.length, BLOCK):
                    n = min(BLOCK, self.length - at)
                    here = np.uint64((int(start) + at * factor) & MASK)
                    place = row * self.length + at
                    yield slice(place, place + n), np.add(ramp[:n], here, out=out[:n])
        elif self.length:
            step = BLOCK // self.length
            for row in range(0, len(starts), step):
                some = starts[row : row + step]
                n = len(some) * self.length
                grid = out[:n].reshape(len(some), self.length)
                np.add(some[:, None], ramp[None, : self.length], out=grid)
                yield slice(row * self.length, row * self.length + n), out[:n]


def word_bytes(regions: Iterable[Region], itemsize: int) -> int:
    """The size of the words in which all of these pieces can be read.

    8 where every run of every piece starts and ends on a multiple of 8 bytes of the global tensor
    (or ends with it), else the size of one element. Pieces to be compared must be read alike.
    """
    if itemsize >= 8:
        return 8
    return 8 if all(_in_words(region, 8 // itemsize) for region in regions) else itemsize


def _in_words(region: Region, per_word: int) -> bool:
    """Whether every run starts and ends on a multiple of `per_word` elements. Runs start at the
    first element plus multiples of the strides of the dims outside them."""
    if not region.count:
        return True
    inner = region.inner
    first, end = region.bounds
    one_run = prod(region.shape[:inner]) == 1
    length = prod(region.shape[inner:])
    if length % per_word and not (one_run and end == prod(region.global_shape)):
        return False
    strides = (prod(region.global_shape[d + 1 :]) for d in range(inner) if region.shape[d] > 1)
    return first % per_word == 0 and all(stride % per_word == 0 for stride in strides)


def raw_words(data: Array, width: int) -> Array:
    """The bits of an array, row-major, as unsigned words of `width` bytes, the last one filled up
    with zeros."""
    flat: Array = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    if flat.size % width:
        flat = np.concatenate([flat, np.zeros(-flat.size % width, np.uint8)])
    return flat.view(f"u{width}")


def checked(data: object, where: str) -> Array:
    """An array whose bits mean something.

    Raises:
        FingerprintError: not a numpy array, or one with a mask; not numbers, foreign byte order, or
            padded elements.
    """
    if not isinstance(data, np.ndarray) or isinstance(data, np.ma.MaskedArray):
        raise FingerprintError(
            f"{where}: expected a numpy array, got {type(cast(object, data)).__name__}; torch "
            "tensors are hashed by shardproof.synthesis.guard.fingerprint_torch"
        )
    array: Array = np.asarray(cast(Array, data))
    kind = array.dtype
    if kind.kind not in "biufc" or kind in (np.dtype(np.longdouble), np.dtype(np.clongdouble)):
        raise FingerprintError(
            f"{where}: dtype {kind} has no fixed bits; expected booleans, integers, floats of 16 "
            "to 64 bits or complex numbers of them (bfloat16 and float8 as views of their bits, "
            "uint16 and uint8)"
        )
    if not kind.isnative:
        raise FingerprintError(
            f"{where}: dtype {kind} is not in this machine's byte order; convert it with "
            f"astype({kind.newbyteorder('=')})"
        )
    return array


def dtype_of(name: np.dtype | str, where: str) -> np.dtype:
    """A dtype by its name. Raises FingerprintError where numpy has none of it, or its bits mean
    nothing (see `checked`)."""
    try:
        kind = np.dtype(name)
    except TypeError:
        raise FingerprintError(
            f"{where}: numpy has no dtype {name!r}; to move bfloat16 take uint16, float8 uint8; to "
            "add bfloat16 take float32 with precision='bf16'"
        ) from None
    return checked(np.empty(0, kind), where).dtype
