"""Kernels that run for a while: the color of every work item after N iterations, known at once.

A kernel that keeps a color per work item and advances it each iteration ends on the color that
`eventual_color` gives without running it. The fingerprint of all items is their sum.
"""

from collections.abc import Sequence

import numpy as np

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, integer
from shardproof.synthesis.guard.fingerprint.mix import GOLDEN, MASK, Words, key as make_key
from shardproof.synthesis.guard.fingerprint.movement import Fp, colors
from shardproof.synthesis.guard.fingerprint.outcome import Verdict
from shardproof.synthesis.guard.fingerprint.region import Array, Region


def _salt(seed: int) -> int:
    return make_key(seed, "kernel")


def eventual_color(seed: int, item: int, iterations: int) -> int:
    """The color of work item `item` (from 0) after that many iterations: its first color plus
    `iterations` times GOLDEN, modulo 2^64. All counts below 2^64 give different colors.

    Raises FingerprintError where a number is negative or no integer."""
    item = integer(item, "eventual_color: the work item", 0)
    iterations = integer(iterations, "eventual_color: iterations", 0)
    if item >> 63:
        raise FingerprintError(f"eventual_color: work item {item}; they are below 2^63")
    first = int(colors(Region((item + 1,), (item,), (1,)), _salt(seed), "u8")[0])
    return (first + iterations * GOLDEN) & MASK


def eventual_fingerprint(seed: int, n_items: int, iterations: int) -> Fp:
    """The sum of the colors of work items 0..n_items-1 after that many iterations.

    Sees, missed with 2^-64 unless said otherwise: items that did not run, ran twice over another's
    place, or ran too few or too many times (one item alone: for certain).
    Does not see: miscounts that cancel, an iteration more in one item and one less in another
    (`verify_items` does), and nothing of what the kernel computes beside its color.

    Raises FingerprintError where a number is negative or no integer.
    """
    n_items = integer(n_items, "eventual_fingerprint: n_items", 0)
    iterations = integer(iterations, "eventual_fingerprint: iterations", 0)
    first = colors(Region.whole((n_items,)), _salt(seed), "u8")
    value = (int(first.sum(dtype=np.uint64)) + n_items * iterations * GOLDEN) & MASK
    return Fp(value, 8 * n_items, _salt(seed), 8)


class KernelColorContext:
    """The colors of the work items of a kernel, carried along while it runs."""

    def __init__(self, n_items: int, seed: int) -> None:
        n_items = integer(n_items, "KernelColorContext: n_items")
        if n_items < 1:
            raise FingerprintError(f"KernelColorContext: {n_items} work items; at least 1")
        self.seed = seed
        self.colors: Words = colors(Region.whole((n_items,)), _salt(seed), "u8")


def kernel_color(
    context: KernelColorContext, items: Array | Sequence[int] | slice | int = slice(None)
) -> Words:
    """One more iteration of these work items (numbers, a mask, or a slice); their colors. An item
    that is named twice advances twice.

    Raises:
        FingerprintError: no such work item.
    """
    last = len(context.colors)
    if isinstance(items, slice):
        at = np.arange(last)[items]
    else:
        at = np.asarray(items)
        if at.dtype == np.bool_ and at.shape == (last,):
            at = np.flatnonzero(at)
        at = at if at.size else at.astype(np.int64)
    if at.dtype.kind not in "iu" or np.any((at < 0) | (at >= last)):
        raise FingerprintError(f"kernel_color: work items are 0..{last - 1}, got {items!r:.60}")
    np.add.at(context.colors, at, np.uint64(GOLDEN))
    return np.atleast_1d(context.colors[at])


def kernel_finalize(context: KernelColorContext) -> Fp:
    """The fingerprint of all items, to be held against `eventual_fingerprint`."""
    value = int(context.colors.sum(dtype=np.uint64))
    return Fp(value & MASK, context.colors.nbytes, _salt(context.seed), 8)


def verify_items(context: KernelColorContext, iterations: int) -> Verdict:
    """Whether every work item ran exactly that many iterations; names the first that did not, and
    how often it ran."""
    iterations = integer(iterations, "verify_items: iterations", 0)
    want = colors(Region.whole((len(context.colors),)), _salt(context.seed), "u8")
    with np.errstate(over="ignore"):
        want += np.asarray(iterations * GOLDEN & MASK, np.uint64)
    wrong = np.flatnonzero(want != context.colors)
    if not wrong.size:
        return Verdict("passed", "kernel", "eventual color")
    at = int(wrong[0])
    off = (int(context.colors[at]) - int(want[at])) & MASK
    ran = iterations + _signed(off * pow(GOLDEN, -1, 1 << 64) & MASK)
    why = f"ran {ran} times" if 0 <= ran < 1 << 32 else "has a color of no iteration"
    expected, found = (f"{int(x[at]):016x}" for x in (want, context.colors))
    span, fault = (at, int(wrong[-1]) + 1), f"work item {at} {why}, not {iterations}"
    return Verdict("failed", "kernel", "eventual color", expected, found, (), span, fault)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x
