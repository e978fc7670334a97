"""Checks of collectives that add: signed block checksums (T1) and spot checks (T2).

Rounding makes the sum of floats depend on its order, so no fingerprint of the inputs tells the bits
of the result. What holds in any order is a bound: if y is a sum of x_1 .. x_n in floats of unit
roundoff u, added in any order, in that format or with a wider accumulator, then

    |y - sum x_k| <= g sum |x_k|,   g = (1 + u)^n - 1      (Higham, Accuracy and Stability, 4.2)

as long as no partial sum overflows and nothing is flushed to zero. Both checks rest on it, so they
raise no false alarm: T2 never, T1 with the chance stated there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt

import numpy as np
import numpy.typing as npt

from synthesis.guard.fingerprint.errors import FingerprintError, integer
from synthesis.guard.fingerprint.floats import FORMATS, Format, as_floats, format_of
from synthesis.guard.fingerprint.mix import MASK, splitmix64
from synthesis.guard.fingerprint.movement import colors
from synthesis.guard.fingerprint.outcome import Verdict
from synthesis.guard.fingerprint.region import Array, Region, checked

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

T = 9.0
"""Width of the T1 threshold: a false alarm per block has a chance below 2 exp(-T^2 / 2) = 5e-18."""


@dataclass(frozen=True)
class Checksum:
    """What one rank sends for T1: 16 bytes a block."""

    sums: Floats
    """Per block, sum of r_i x_i with signs r_i of the key."""
    norms: Floats
    """Per block, the 2-norm of x."""
    block: int
    key: int
    count: int
    format: str


def signed_checksum(
    x: Array, key: int, *, block: int = 1024, precision: str | None = None
) -> Checksum:
    """The signed sums and norms of blocks of a tensor, in float64.

    Every rank takes it of its input before a sum collective, with the same key, and of the output
    after it. `precision="bf16"` says that a float32 array holds bfloat16 values,
    or a uint16 array their bits.

    Raises:
        FingerprintError: not a float tensor, no block size, or a key that is no integer.
    """
    x = as_floats(checked(x, "signed_checksum"), precision)
    kind = format_of(x.dtype, precision, "signed_checksum")
    key, asked = integer(key, "signed_checksum: the key"), integer(block, "signed_checksum: block")
    if asked < 1:
        raise FingerprintError(f"signed_checksum: blocks of {block} elements; at least 1")
    block = min(asked, max(1, x.size))
    n = -(-x.size // block)
    bits = colors(Region.whole((-(-n * block // 64),)), key, "u8").view(np.uint8)
    sums, norms, flat = np.empty(n), np.empty(n), x.reshape(-1)
    step = max(1, (1 << 16) // block // 8 * 8)
    buffer = np.zeros((min(step, n), block))
    for first in range(0, n, step):
        last = min(n, first + step)
        values = buffer[: last - first]
        piece = flat[first * block : last * block]
        with np.errstate(all="ignore"):  # signalling NaNs
            values.reshape(-1)[: piece.size] = piece
        values.reshape(-1)[piece.size :] = 0
        signs = np.unpackbits(
            bits[first * block // 8 : -(-last * block // 8)],
            count=values.size,
            bitorder="little",
        ).astype(np.float64)
        sums[first:last], norms[first:last] = _signed(values, 1 - 2 * signs.reshape(values.shape))
    return Checksum(sums, norms, asked, key & MASK, x.size, kind.name)


def _signed(values: Floats, signs: Floats) -> tuple[Floats, Floats]:
    """Signed sums and 2-norms of rows. The squares are scaled where they leave the range."""
    with np.errstate(all="ignore"):
        sums = np.einsum("ij,ij->i", values, signs)
        norms = np.sqrt(np.einsum("ij,ij->i", values, values))
        far = ~((norms > 1e-140) & (norms < 1e140))
        if np.any(far):
            some = values[far]
            peak = np.max(np.abs(some), axis=1, initial=0.0)
            scale = np.where((peak > 0) & np.isfinite(peak), peak, 1.0)
            norms[far] = scale * np.sqrt(np.sum(np.square(some / scale[:, None]), axis=1))
    return sums, norms


def check_sums(
    op: str,
    inputs: Sequence[Checksum],
    output: Checksum,
    *,
    average: bool = False,
    flushes_subnormals: bool = False,
) -> Verdict:
    """T1: whether y can be the sum of the inputs, block by block.

        |sum r y - sum_k sum r x_k| <= T g sum_k ||x_k||_2   (and a term for the float64 sums)

    Why there are no false alarms: y = sum x_k + e with |e_i| <= g sum_k |x_ki| in any order of
    addition, and the signs r do not depend on e, so by Hoeffding sum r e exceeds T ||e||_2 with a
    chance of at most 2 exp(-T^2 / 2). An average adds two roundings. Backends that flush
    subnormals to zero add n times the smallest normal number to a sum, n + 1 times to an average.

    Sees: what shifts a block by more than the threshold: a rank that is missing or counted twice,
    a partial result left as it is, a sum for an average, chunks in the wrong place. In f32 they
    are found wherever they were tried; in bf16 take blocks of 64, and still a missing rank of
    eight was overlooked in one of ten tensors of 2048 elements (a larger one has more blocks).

    Does not see: small changes. A flipped low bit, or any flip in bf16, may hide in the rounding
    that is allowed for, and a block where the lost part is tiny hides it too. It is no detector of
    bit flips: compare replicas (R), or sum exactly (T3). Blocks with infinities or NaNs in an input
    are not judged (they are counted), nor those that may have overflowed.
    """
    if not inputs:
        raise FingerprintError(f"{op}: T1 needs the checksum of every rank's input")
    kind, n, block = FORMATS[output.format], len(inputs), min(output.block, max(1, output.count))
    for rank, item in enumerate(inputs):
        if not isinstance(item, Checksum):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise FingerprintError(f"{op}, rank {rank}: expected a checksum, got {item!r:.60}")
        theirs = (item.block, item.key, item.count, item.format)
        mine = (output.block, output.key, output.count, output.format)
        if theirs != mine:
            raise FingerprintError(
                f"{op}: rank {rank}'s checksum has block, key, elements and format {theirs}, "
                f"the output's has {mine}"
            )
    with np.errstate(all="ignore"):
        norm = np.sum([item.norms for item in inputs], axis=0)
        wanted = np.sum([item.sums for item in inputs], axis=0)
        got = output.sums * n if average else output.sums
        gamma = kind.gamma(n + 2 * average)
        in_f64 = (2 * block + 2 * n + 8) * FORMATS["f64"].unit * sqrt(block) * 1.25
        bound = (T * gamma * (1 + 1e-9) + in_f64) * norm
        bound += lost(kind, n, average, flushes_subnormals) * block * (n if average else 1)
        difference = np.abs(got - wanted)
        summed = norm * (1 + gamma) * 2 * sqrt(block)  # more than any signed sum in float64
        legible = (norm * (1 + gamma) < kind.largest) & (summed < FORMATS["f64"].largest)
        bad = legible & ~(difference <= bound)
    if np.any(bad):
        at = int(np.argmax(bad))
        last = int(np.flatnonzero(bad)[-1])
        return Verdict(
            "failed",
            op,
            "T1",
            f"block {at} sums to {wanted[at]:.17g} within {bound[at]:.3g}",
            f"{got[at]:.17g}",
            (),
            (at * block, min(output.count, (last + 1) * block)),
            f"{int(np.sum(bad))} of {len(bad)} blocks are no sum of the inputs"
            + _guess(inputs, got, wanted, bound, bad),
        )
    return _passed(op, "T1", int(np.sum(~legible)), len(legible))


def _guess(
    inputs: Sequence[Checksum],
    got: Floats,
    wanted: Floats,
    bound: Floats,
    bad: npt.NDArray[np.bool],
) -> str:
    """Which rank's share, taken out or counted again, explains every bad block."""
    for rank, item in enumerate(inputs):
        for times, what in ((-1, "missing"), (1, "counted twice")):
            with np.errstate(all="ignore"):
                off = np.abs(got - wanted - times * item.sums)
            if np.all(off[bad] <= 2 * bound[bad]):
                return f"; as if rank {rank} were {what}"
    return ""


def _passed(op: str, check: str, skipped: int, places: int) -> Verdict:
    if places and skipped == places:
        why = "every place holds infinities or NaNs, or may overflow"
        return Verdict("skipped", op, check, probable_fault=why)
    return Verdict("passed", op, check, skipped=skipped)


@dataclass(frozen=True)
class Sample:
    """What one rank sends for T2: its raw values at the places of the key."""

    values: Array
    places: Ints
    key: int
    shape: tuple[int, ...]
    format: str


def spots(count: int, key: int, samples: int = 64) -> Ints:
    """`samples` places below `count`, drawn by the key (one may come twice); all of them where
    there are no more."""
    if count <= samples:
        return np.arange(count)
    drawn = colors(Region.whole((samples,)), splitmix64(key), "u8")
    return np.sort(drawn % np.uint64(count)).astype(np.int64)


def sample(x: Array, key: int, *, samples: int = 64, precision: str | None = None) -> Sample:
    """The values of a tensor at places drawn by the key.

    Raises:
        FingerprintError: no floats, no places, or a key that is no integer.
    """
    x, key = as_floats(checked(x, "sample"), precision), integer(key, "sample: the key")
    kind = format_of(x.dtype, precision, "sample")
    samples = integer(samples, "sample: samples", 1)
    places = spots(x.size, key, samples)
    return Sample(x.reshape(-1)[places], places, key & MASK, x.shape, kind.name)


def check_sample(
    op: str,
    inputs: Sequence[Sample],
    output: Sample,
    *,
    average: bool = False,
    flushes_subnormals: bool = False,
) -> Verdict:
    """T2: the sum again, at sampled places, from every rank's raw inputs.

    The inputs are added exactly (Shewchuk's `fsum`, one rounding), and y has to be within
    g sum |x_k| of that, so there is never a false alarm.

    Sees: faults that touch much of the tensor, for certain once they touch a sampled place by more
    than rounding could: a missing or repeated rank, no reduction or two of them, an average for a
    sum, chunks in each other's place.

    Does not see: a fault of a few elements, except with a chance of about samples * share of the
    tensor; one below the rounding that is allowed. Places with infinities or NaNs, and those that
    may overflow, are not judged (they are counted).
    """
    if not inputs:
        raise FingerprintError(f"{op}: T2 needs the sampled inputs of every rank")
    kind, n = FORMATS[output.format], len(inputs)
    for rank, item in enumerate(inputs):
        if not isinstance(item, Sample):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise FingerprintError(f"{op}, rank {rank}: expected a sample, got {item!r:.60}")
        theirs = (item.key, item.shape, item.format, len(item.places))
        mine = (output.key, output.shape, output.format, len(output.places))
        if theirs != mine:
            raise FingerprintError(
                f"{op}: rank {rank}'s sample has key, shape, format and places {theirs}, the "
                f"output's has {mine}"
            )
    with np.errstate(all="ignore"):  # signalling NaNs
        columns = np.array([item.values for item in inputs], np.float64).reshape(n, -1)
        got = output.values.astype(np.float64)
    skipped, bad = 0, list[tuple[int, float, float, float]]()
    for place, xs, y in zip(output.places.tolist(), columns.T.tolist(), got.tolist(), strict=True):
        size = _magnitude(xs)
        if not size * (1 + kind.gamma(n)) < kind.largest:
            skipped += 1
            continue
        wanted = fsum(xs) / (n if average else 1)
        bound = _bound(kind, n, size, average, flushes_subnormals)
        if not abs(y - wanted) <= bound:
            bad.append((place, wanted, bound, y))
    if bad:
        place, wanted, bound, found = bad[0]
        return Verdict(
            "failed",
            op,
            "T2",
            f"{wanted:.17g} within {bound:.3g} at element {place}",
            f"{found:.17g}",
            (),
            (place, bad[-1][0] + 1),
            f"{len(bad)} of {len(output.places)} sampled elements are no sum of the inputs",
        )
    return _passed(op, "T2", skipped, len(output.places))


def _magnitude(xs: list[float]) -> float:
    try:
        return fsum(abs(x) for x in xs)
    except OverflowError:
        return float("inf")


def _bound(kind: Format, n: int, size: float, average: bool, flushes: bool) -> float:
    bound = (kind.gamma(n + 2 * average) + 4 * FORMATS["f64"].unit) * size
    return (bound / n if average else bound) + lost(kind, n, average, flushes)


def lost(kind: Format, n: int, average: bool, flushes: bool) -> float:
    """What an element may lose below the smallest normal number. Sums of floats lose nothing there;
    n products with 1/n are rounded to multiples of the smallest subnormal one, and so is a
    quotient. A backend that flushes loses less than the smallest normal number with each term that
    it takes for zero, and a partial sum can be lost only where terms were not."""
    below = 2 * n * kind.smallest_normal * kind.unit if average else 0.0
    return below + ((n + average) * kind.smallest_normal if flushes else 0.0)
