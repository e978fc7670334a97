"""Spot checks of collectives that add (T2).

Rounding makes the sum of floats depend on its order, so no fingerprint of the inputs tells the bits
of the result. What holds in any order is a bound: if y is a sum of x_1 .. x_n in floats of unit
roundoff u, added in any order, in that format or with a wider accumulator, then

    |y - sum x_k| <= g sum |x_k|,   g = (1 + u)^n - 1      (Higham, Accuracy and Stability, 4.2)

as long as no partial sum overflows and nothing is flushed to zero. The check rests on it, so it
raises no false alarm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np
import numpy.typing as npt

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, expect, integer
from shardproof.synthesis.guard.fingerprint.floats import FORMATS, Format, as_floats, format_of
from shardproof.synthesis.guard.fingerprint.mix import MASK, splitmix64
from shardproof.synthesis.guard.fingerprint.movement import colors
from shardproof.synthesis.guard.fingerprint.outcome import Verdict
from shardproof.synthesis.guard.fingerprint.region import Array, Region, checked

Ints = npt.NDArray[np.int64]


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
        expect(item, Sample, f"{op}, rank {rank}: expected a sample")
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
        want = f"{wanted:.17g} within {bound:.3g} at element {place}"
        why = f"{len(bad)} of {len(output.places)} sampled elements are not a sum of the inputs"
        span = (place, bad[-1][0] + 1)
        return Verdict("failed", op, "T2", want, f"{found:.17g}", (), span, why)
    if skipped and skipped == len(output.places):
        why = "every place holds infinities or NaNs, or may overflow"
        return Verdict("skipped", op, "T2", probable_fault=why)
    return Verdict("passed", op, "T2", skipped=skipped)


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
