"""Sums checked bit by bit: integer canaries, replicas (R), and sums in a fixed order (T3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, integer
from shardproof.synthesis.guard.fingerprint.floats import as_floats, format_of
from shardproof.synthesis.guard.fingerprint.mix import Words, key as make_key
from shardproof.synthesis.guard.fingerprint.movement import Fp, colors, fingerprint
from shardproof.synthesis.guard.fingerprint.outcome import Verdict, combined, compared, same
from shardproof.synthesis.guard.fingerprint.region import (
    Array,
    Region,
    checked,
    dtype_of,
    raw_words,
)

TRIED = 64
"""Ranks whose mistakes are tried to name a fault."""
Pieces = list[Array]
AllToAll = Callable[[list[Pieces]], list[Pieces]]
AllGather = Callable[[Pieces], list[Pieces]]


def check_replicas(op: str, fps: Sequence[Fp]) -> Verdict:
    """R: that all ranks hold the same bits, by the fingerprints of their copies.

    Sees: any fault that reaches some ranks and not others, with the certainty of `fingerprint`; by
    majority it names them. Does not see a fault that reaches all ranks alike, nor whether the value
    is right. It needs a backend that gives all ranks the same bits, as NCCL and gloo do.
    """
    return same(op, "R", fps, "the copies of the ranks differ")


def canary_limit(n_ranks: int, digits: int) -> int:
    """The largest integer that n ranks may each hold so that no sum needs rounding: 2^p / n."""
    return (1 << digits) // n_ranks


def _limit(n_ranks: int, dtype: np.dtype, precision: str | None) -> int:
    limit = canary_limit(n_ranks, _digits(dtype, precision))
    return 0 if dtype.kind == "u" and limit == 1 else limit  # without signs, all ranks would hold 1


def _digits(dtype: np.dtype, precision: str | None) -> int:
    if dtype.kind in "iu":
        return 8 * dtype.itemsize - 2
    return format_of(dtype, precision, "sum canary").digits


def sum_canary(
    shape: Sequence[int],
    n_ranks: int,
    rank: int,
    key: int,
    dtype: np.dtype | str = "float32",
    *,
    precision: str | None = None,
) -> Array:
    """The payload of one rank for a sum collective: integers whose sums are exact in any order.

    They are not 0 and at most floor(2^p / n) in size, p the bits of the significand, so every
    partial sum is an integer that the format holds: whatever order, tree or accumulator, the result
    is known before running, to the bit. With more than 2^p ranks (of unsigned integers, half as
    many) each element is held by one rank, the others have 0 there.

    Sees: all wiring faults: a rank missing, counted twice, left out of the reduction, reduced
    again, chunks swapped or left unprocessed, a stale buffer (take a key per step).
    Does not see: faults of another run than the canary's; an average of one value over equal ranks.

    Raises:
        FingerprintError: no such rank, or a dtype that is neither float nor integer.
    """
    n_ranks, rank = integer(n_ranks, "sum canary: n_ranks"), integer(rank, "sum canary: rank")
    if not 0 <= rank < n_ranks:
        raise FingerprintError(f"sum canary: rank {rank} is not one of {n_ranks}")
    dtype = dtype_of(dtype, "sum canary")
    limit = _limit(n_ranks, dtype, precision)
    if not limit:
        owner, whole = _owned(shape, n_ranks, key, dtype)
        return np.where(owner == np.uint64(rank), whole, np.zeros((), dtype))
    drawn = colors(Region.whole(shape), make_key(key, "sum canary", rank), "u8")
    size = drawn % np.uint64(limit) + np.uint64(1)
    if dtype.kind == "u":
        return size.astype(dtype)
    sign = np.where(drawn >> np.uint64(63), -1, 1)
    return (size.astype(np.int64) * sign).astype(dtype)


def _owned(shape: Sequence[int], n_ranks: int, key: int, dtype: np.dtype) -> tuple[Words, Array]:
    """Where no rank may hold more than 1 everywhere: the one that holds each element, and what."""
    drawn = colors(Region.whole(shape), make_key(key, "sum canary", "owner"), "u8")
    return drawn % np.uint64(n_ranks), (drawn >> np.uint64(63)).astype(dtype) + np.ones((), dtype)


def expected_sum(
    shape: Sequence[int],
    n_ranks: int,
    key: int,
    dtype: np.dtype | str = "float32",
    *,
    precision: str | None = None,
) -> Array:
    """What the sum of all canaries is, in any order."""
    result = sum_canary(shape, n_ranks, 0, key, dtype, precision=precision)
    if not _limit(n_ranks, result.dtype, precision):
        return _owned(shape, n_ranks, key, result.dtype)[1]
    for rank in range(1, n_ranks):
        result = result + sum_canary(shape, n_ranks, rank, key, dtype, precision=precision)
    return result + np.zeros((), result.dtype)


def check_canary_sum(
    op: str,
    reduced: Array,
    n_ranks: int,
    key: int,
    *,
    region: Region | None = None,
    precision: str | None = None,
) -> Verdict:
    """Whether a sum of canaries (or this region of it) is what it has to be. -0 counts as 0."""
    reduced = as_floats(checked(reduced, op), precision)
    region = region or Region.whole(reduced.shape)
    want = region.cut(
        expected_sum(region.global_shape, n_ranks, key, reduced.dtype, precision=precision)
    )
    with np.errstate(all="ignore"):
        got = reduced + np.zeros((), reduced.dtype)
    expected, actual = fingerprint(want, region, key), fingerprint(got, region, key)
    span, why = None, ""
    if expected != actual:
        span = _span(region, np.flatnonzero(want.reshape(-1) != got.reshape(-1)))
        why = _explain(got, want, region, n_ranks, key, precision)
    return compared(op, "canary", expected, actual, (), span, why)


def _span(region: Region, wrong: Array) -> tuple[int, int]:
    at = np.unravel_index(wrong, region.shape)
    there = [i + s for i, s in zip(at, region.start, strict=True)]
    g = np.ravel_multi_index(there, region.global_shape)
    return int(g.min()), int(g.max()) + 1


def _explain(
    got: Array, want: Array, region: Region, n: int, key: int, precision: str | None
) -> str:
    """Which single mistake gives what was got, tried one by one."""
    kind = got.dtype
    if kind.kind == "f":
        with np.errstate(all="ignore"):
            got = got.astype(np.float64)
            off = got - want
    else:
        off = got - want
    for rank in range(min(n, TRIED)):
        share = sum_canary(region.global_shape, n, rank, key, kind, precision=precision)
        share = region.cut(share).astype(got.dtype)
        for what, shift in (("missing", -share), ("counted twice", share)):
            if np.array_equal(off, shift):
                return f"rank {rank} is {what}"
        if np.array_equal(got, share):
            return f"rank {rank}'s share as it was: not reduced"
    if np.array_equal(got, want * np.asarray(n).astype(got.dtype)):
        return "reduced twice"
    if got.dtype.kind == "f" and np.allclose(got, want.astype(np.float64) / n, rtol=0.02):
        return "an average, not a sum"
    differ = int(np.sum(got != want))
    model = "; were the inputs sum_canary with this key?" if differ == got.size else ""
    return f"{differ} of {got.size} elements differ{model}"


def _alike(where: str, pieces: Sequence[Array]) -> None:
    kinds = {(p.dtype, p.shape) for p in pieces}
    if len(kinds) != 1:
        named = ", ".join(sorted(f"{d}{list(s)}" for d, s in kinds)) or "nothing"
        raise FingerprintError(f"{where}: expected pieces of one dtype and shape, got {named}")


def ordered_sum(pieces: Sequence[Array]) -> Array:
    """The sum of the ranks' pieces in the order of the ranks, in their dtype: one result to the
    bit, every NaN the same. Raises FingerprintError where there are none, or their shapes or dtypes
    differ."""
    pieces = [checked(p, f"ordered sum, rank {rank}") for rank, p in enumerate(pieces)]
    _alike("ordered sum", pieces)
    result = pieces[0].copy()
    with np.errstate(all="ignore"):
        for piece in pieces[1:]:
            result += piece
    return one_nan(result)


def one_nan(values: Array) -> Array:
    """The array with one NaN for all. Which of two NaNs a sum keeps differs between the lanes of
    one loop, so their bits say nothing of its order."""
    if values.dtype.kind == "c":
        parts = np.ascontiguousarray(values).reshape(-1).view(f"f{values.itemsize // 2}")
        return one_nan(parts).view(values.dtype).reshape(values.shape)
    if values.dtype.kind == "f" and np.any(odd := np.isnan(values)):
        values = values.copy()
        values[odd] = np.nan
    return values


def check_exact_sum(
    op: str, inputs: Sequence[Array], reduced: Array, key: int, *, average: bool = False
) -> Verdict:
    """T3 from whole inputs: the result is, to the bit, their sum in the order of the ranks (then
    divided by their number, for an average of floats).

    Sees: every fault, with the certainty of `fingerprint`. Asks for an all-reduce that adds in that
    order (`exact_all_reduce`); of any other it says nothing, and floats will differ. Does not see
    which NaN a NaN is.
    """
    reduced = one_nan(checked(reduced, op))
    want = ordered_sum(inputs)
    if average:
        if want.dtype.kind not in "fc":
            raise FingerprintError(f"{op}: an average of {want.dtype} is not a sum; take its sum")
        with np.errstate(all="ignore"):
            want = one_nan(np.asarray(want / len(inputs), want.dtype))
    if (want.shape, want.dtype) != (reduced.shape, reduced.dtype):
        raise FingerprintError(
            f"{op}: inputs of {want.dtype}{list(want.shape)}, output {reduced.dtype}"
            f"{list(reduced.shape)}"
        )
    expected, actual = fingerprint(want, None, key), fingerprint(reduced, None, key)
    differs = raw_words(want, 1) != raw_words(reduced, 1)
    wrong = np.flatnonzero(np.any(differs.reshape(want.size, want.itemsize), axis=1))
    span = (int(wrong[0]), int(wrong[-1]) + 1) if wrong.size else None
    why = f"{wrong.size} of {want.size} elements are not the sum in the order of the ranks"
    return compared(op, "T3", expected, actual, (), span, why)


@dataclass(frozen=True)
class ExactSum:
    """The outputs of all ranks, and what the three steps of the sum said of themselves."""

    outputs: Pieces
    verdict: Verdict
    steps: tuple[Verdict, ...]


def _exchange(pieces: list[Pieces]) -> list[Pieces]:
    return [[row[r] for row in pieces] for r in range(len(pieces))]


def _everyone(pieces: Pieces) -> list[Pieces]:
    return [list(pieces) for _ in pieces]


def exact_all_reduce(
    inputs: Sequence[Array],
    key: int,
    *,
    all_to_all: AllToAll = _exchange,
    all_gather: AllGather = _everyone,
    add: Callable[[int, Sequence[Array]], Array] = lambda rank, pieces: ordered_sum(pieces),
) -> ExactSum:
    """T3: an all-reduce of movement and local sums only, each checked to the bit.

    Chunk j of every rank goes to rank j (fingerprints of what was sent and of what arrived), rank j
    adds them in the order of the ranks (and again; the two have to agree), and all chunks go to all
    ranks (fingerprints again). It moves as many bytes as a ring, and has one result to the bit.

    `all_to_all`, `all_gather` and `add` are those of the machine; they are plain moves here.

    Sees: every fault on the way, naming the step and the rank. An adder that errs the same way
    twice is not seen; `add` on another rank for the second sum finds it. Nor is which NaN a sum
    gives.
    """
    flat = [checked(x, "exact_all_reduce").reshape(-1) for x in inputs]
    _alike("exact_all_reduce", inputs)
    n, size = len(flat), flat[0].size
    cuts = [min(size, -(-size // n) * r) for r in range(n + 1)]
    where = [Region((size,), (a,), (b - a,)) for a, b in pairwise(cuts)]
    rows = [[r.cut(x) for r in where] for x in flat]

    def tag(sender: int) -> int:
        return make_key(key, "T3", sender)

    sent = [
        [fingerprint(p, where[j], tag(i)) for j, p in enumerate(row)] for i, row in enumerate(rows)
    ]
    arrived = all_to_all(rows)
    steps = [
        _moved("all_to_all", sent[i][j], p, where[j], tag(i), i)
        for j, row in enumerate(arrived)
        for i, p in enumerate(row)
    ]
    sums = [one_nan(add(j, row)) for j, row in enumerate(arrived)]
    for j, row in enumerate(arrived):
        again = fingerprint(ordered_sum(row), where[j], tag(n))
        steps.append(_moved("local sum", again, sums[j], where[j], tag(n), j))
    results = [fingerprint(p, where[j], tag(n)) for j, p in enumerate(sums)]
    gathered = all_gather(sums)
    steps += [
        _moved("all_gather", results[j], p, where[j], tag(n), j)
        for row in gathered
        for j, p in enumerate(row)
    ]
    outputs = [np.concatenate(row).reshape(inputs[0].shape) for row in gathered]
    return ExactSum(outputs, combined(steps), tuple(steps))


def _moved(op: str, want: Fp, data: Array, where: Region, key: int, rank: int) -> Verdict:
    if data.shape != where.shape:
        got = f"{list(data.shape)} elements"
        return Verdict("failed", op, "T3", str(want), got, (rank,), where.bounds, "wrong size")
    got, why = fingerprint(data, where, key), f"what rank {rank} gave"
    return compared(op, "T3", want, got, (rank,), where.bounds, why)
