"""Faults of what is moved: bits, shards, messages, buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.fault_kinds import MOVEMENT, FaultInjector, flip_bits, same_bytes
from benchmarks.fault_rows import Row
from shardproof.synthesis.guard.fingerprint import (
    TensorPartition,
    fingerprint,
    handoff_key,
    verify_allgather,
    verify_pipeline_handoff,
    verify_send_buffer,
)
from shardproof.synthesis.guard.fingerprint.region import Array

Rng = np.random.Generator
DTYPES = ("f4", "f2", "f8", "i8", "u1", "u2", "c8", "?")
ONE_RANK = {"bit_flip", "drop", "stale", "shift", "permute_rows", "wrong_dim", "tail", "duplicate"}


def every_bit(dtype: str, step: int) -> Row:
    """Each bit of a 32 x 48 tensor alone."""
    x = np.random.default_rng(1).standard_normal((32, 48)).astype("f4").astype(dtype)
    row, want = Row(f"one bit, 32 x 48 {dtype}, every {step}. bit"), fingerprint(x, None, 3)
    for bit in range(0, 8 * x.nbytes, step):
        row.add(True, fingerprint(flip_bits(x, [bit]), None, 3) != want)
    return row


def every_pair() -> Row:
    """All pairs of flips in 64 f32 words: within a word by the hash of the pair, across words by
    the hashes of the two flips, which add."""
    x = np.random.default_rng(2).standard_normal(64).astype("f4")
    row, want = Row("all pairs of bits in 64 words"), fingerprint(x, None, 3, width=4)
    one = [fingerprint(flip_bits(x, [b]), None, 3, width=4) - want for b in range(2048)]
    off = np.array([fp.value for fp in one], np.uint64)
    word = np.arange(2048) // 32
    for i in range(2048):
        others = word[i + 1 :] != word[i]
        escapes = int(np.sum((off[i + 1 :] + off[i] == 0) & others))
        row.injected += int(np.sum(others))
        row.found += int(np.sum(others)) - escapes
    for w in range(0, 64, 8):
        for a in range(32):
            for b in range(a):
                flipped = flip_bits(x, [32 * w + a, 32 * w + b])
                row.add(True, fingerprint(flipped, None, 3, width=4) != want)
    return row


def many_flips(count: int, rng: Rng) -> list[Row]:
    """k flips at random places, in one column of bits, and of signs."""
    rows = [Row(f"{k} random flips") for k in (2, 4, 8, 64)]
    rows += [Row("2 flips in one bit column"), Row("2 signs")]
    x = rng.standard_normal(512).astype("f4")
    want = fingerprint(x, None, 5)
    for row in rows:
        for _ in range(count):
            a, b = rng.choice(512, 2, replace=False)
            if row.what.endswith("random flips"):
                bits = rng.integers(0, 8 * x.nbytes, int(row.what.split()[0])).tolist()
            else:
                bit = 31 if row.what == "2 signs" else int(rng.integers(32))
                bits = [int(32 * a + bit), int(32 * b + bit)]
            y = flip_bits(x, bits)
            row.add(not same_bytes(x, y), fingerprint(y, None, 5) != want)
    return rows


def draw(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Bits of every kind: numbers, NaNs, infinities, both zeros, subnormals, repeated values."""
    size = int(np.prod(shape))
    if dtype == "?":
        return rng.integers(0, 2, size).astype("?").reshape(shape)
    raw = rng.integers(0, 256, size * np.dtype(dtype).itemsize).astype("u1")
    if rng.random() < 0.3:
        raw[:] = raw[0] if raw.size else 0
    if rng.random() < 0.5 and np.dtype(dtype).kind == "f":
        return rng.standard_normal(size).astype(dtype).reshape(shape)
    return raw.view(dtype).reshape(shape)


def split(rng: Rng, n: int, dim: int, uneven: bool) -> tuple[TensorPartition, ...]:
    shape = [int(rng.integers(2, 6)), int(rng.integers(2, 6)), int(rng.integers(2, 6))]
    shape[dim] = n * int(rng.integers(1, 5)) - (int(rng.integers(1, n)) if uneven else 0)
    whole = (shape[0], shape[1], shape[2])
    return TensorPartition(dim, n, 0, global_shape=whole, uneven=True).siblings()


def moved(
    count: int,
    rng: Rng,
    seed: int,
    dtypes: Sequence[str] = DTYPES,
    ranks: Sequence[int] = (2, 3, 4, 8),
) -> list[Row]:
    """Faults of an all-gather: ranks, dims, shards of unequal size, dtypes."""
    injector = FaultInjector(seed)
    rows: list[Row] = []
    for kind in MOVEMENT:
        row = Row(f"all-gather: {kind}")
        for dtype in dtypes:
            for n in ranks:
                for dim in range(3):
                    for uneven in (False, True):
                        for _ in range(count):
                            one_gather(
                                row, kind, n, split(rng, n, dim, uneven), dtype, rng, injector
                            )
        rows.append(row)
    return rows


def one_gather(
    row: Row,
    kind: str,
    n: int,
    parts: tuple[TensorPartition, ...],
    dtype: str,
    rng: Rng,
    injector: FaultInjector,
) -> None:
    salt = int(rng.integers(1 << 60))
    shards = [draw(rng, p.region().shape, dtype) for p in parts]
    old = [draw(rng, p.region().shape, dtype) for p in parts]
    sent = [fingerprint(s, p, salt) for s, p in zip(shards, parts, strict=True)]
    fault = injector.draw(kind, n)
    arrived = injector.inject(fault, shards, old)
    verdict = verify_allgather(
        np.concatenate(arrived, axis=parts[0].dim), parts, shard_fps=sent, key=salt
    )
    right = None
    if kind in ONE_RANK:
        right = verdict.culprit_ranks == (fault.rank,)
    row.add(injector.changed, verdict.alarm, right)


def handoffs(count: int, rng: Rng) -> list[Row]:
    """Activations of another stage, layer, micro-batch or step, and those of the receive before."""
    rows: list[Row] = []
    route = {"from_rank": 1, "to_rank": 2, "layer": 8, "micro_batch": 3, "step": 5}
    for field in (*route, "repeated receive"):
        row = Row(f"handoff: {field}")
        for _ in range(count):
            x, y = rng.standard_normal((2, 4, 16)).astype("f4")
            sent = route if field == "repeated receive" else {**route, field: route[field] + 1}
            fp = fingerprint(x, None, handoff_key(7, **sent))
            arrived = y if field == "repeated receive" else x
            row.add(True, verify_pipeline_handoff(arrived, **route, seed=7, sent_fp=fp).alarm)
        rows.append(row)
    return rows


def races(count: int, rng: Rng) -> Row:
    """The send buffer is written between the two hashes."""
    row = Row("send buffer written while it is sent")
    for _ in range(count):
        x = rng.standard_normal(256).astype("f4")
        before = fingerprint(x, None, 1)
        at = int(rng.integers(256))
        old = x[at]
        x[at] = rng.standard_normal()
        verdict = verify_send_buffer(before, fingerprint(x, None, 1), 0)
        row.add(bool(x[at] != old), verdict.alarm)
    return row
