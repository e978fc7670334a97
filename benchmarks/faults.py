"""`python -m benchmarks.faults`: faults injected into exchanges in numpy, and what the checks say.

A fault that changes no byte is counted apart. 0 misses in N faults bound the rate of misses by 3/N
at 95 %. Everything is drawn from the seed that is printed. Exits 1 on a miss of a check that claims
to see the fault, on a wrong rank named for a fault of one rank, and on any false alarm.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from verifier.fingerprint import (
    FaultInjector,
    Fp,
    TensorPartition,
    exact_all_reduce,
    fingerprint,
    handoff_key,
    ordered_sum,
    sample,
    signed_checksum,
    sum_canary,
    total,
    verify_allgather,
    verify_allreduce,
    verify_pipeline_handoff,
    verify_replicated,
    verify_send_buffer,
)
from verifier.fingerprint.faults import MOVEMENT, SUMS, flip_bits, same_bytes
from verifier.fingerprint.floats import narrow, widen
from verifier.fingerprint.region import Array, Region

Rng = np.random.Generator
DTYPES = ("f4", "f2", "f8", "i8", "u1", "u2", "c8", "?")
ONE_RANK = {"bit_flip", "drop", "stale", "shift", "permute_rows", "wrong_dim", "tail", "duplicate"}


@dataclass
class Row:
    """What came of one class of faults under one check."""

    what: str
    injected: int = 0
    unchanged: int = 0
    found: int = 0
    located: int = -1
    required: bool = True

    def add(self, changed: bool, alarm: bool, located: bool | None = None) -> None:
        if not changed:
            self.unchanged += 1
            return
        self.injected += 1
        self.found += alarm
        if located is not None:
            self.located = max(self.located, 0) + located

    @property
    def bad(self) -> bool:
        missed = self.found < self.injected or (0 <= self.located < self.injected)
        return self.required and (missed or not self.injected)

    def __str__(self) -> str:
        rate = self.found / self.injected if self.injected else 0.0
        where = f"{self.located:7}" if self.located >= 0 else "      -"
        note = "  MISSED" if self.bad else "" if self.required else "  recorded"
        return (
            f"  {self.what:58} {self.injected:8} {self.unchanged:6} {self.found:8} "
            f"{rate:7.1%} {where}{note}"
        )


@dataclass
class Clean:
    """Runs without a fault."""

    what: str
    runs: int = 0
    alarms: int = 0
    skipped: int = 0

    @property
    def bad(self) -> bool:
        return self.alarms > 0 or self.runs == 0

    def __str__(self) -> str:
        return f"  {self.what:58} {self.runs:8} {self.skipped:6} {self.alarms:8} alarms"


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


def adder(form: str, rng: Rng) -> Callable[[Sequence[Array]], Array]:
    """A sum as some backend does it: from any rank on round the ring, as a tree, or rounded once
    from a wide accumulator."""
    how = int(rng.integers(3))

    def once(x: Array) -> Array:
        return widen(narrow(x)) if form == "bf16" else x.astype(form)

    def add(xs: Sequence[Array]) -> Array:
        if how == 0:
            return once(
                np.sum([x.astype("f8") for x in xs], axis=0).astype(
                    "f4" if form == "bf16" else form
                )
            )
        work = list(xs[len(xs) // 2 :]) + list(xs[: len(xs) // 2])
        while len(work) > 1:
            if how == 1:
                work = [once(work[0] + work[1]), *work[2:]]
            else:
                pairs = [once(a + b) for a, b in zip(work[::2], work[1::2], strict=False)]
                work = pairs + (work[-1:] if len(work) % 2 else [])
        return work[0].copy()

    return add


LEVELS = ("canary", "R", "T2", "T1", "T3")
LOCAL = {"zero_tail"}


def sums(count: int, rng: Rng, seed: int, size: int = 2048) -> list[Row]:
    """Faults of an all-reduce, at every level."""
    injector = FaultInjector(seed)
    rows: list[Row] = []
    for kind in SUMS:
        by_level = {
            level: Row(
                f"all-reduce: {kind}, {level}",
                required=level != "T1" and not (kind in LOCAL and level == "T2"),
            )
            for level in LEVELS
        }
        for form in ("f4", "bf16"):
            for n in (2, 3, 8):
                for _ in range(count):
                    one_sum(by_level, kind, form, n, size, rng, injector)
        rows += by_level.values()
    return rows


def one_sum(
    rows: dict[str, Row],
    kind: str,
    form: str,
    n: int,
    size: int,
    rng: Rng,
    injector: FaultInjector,
) -> None:
    salt = int(rng.integers(1 << 60))
    precision = "bf16" if form == "bf16" else None
    add, fault = adder(form, rng), injector.draw(kind, n)
    xs: list[Array] = [rng.standard_normal(size).astype("f4") for _ in range(n)]
    if precision:
        xs = [widen(narrow(x)) for x in xs]
    right = add(xs)
    wrong = injector.inject_sum(fault, xs, add)
    changed = injector.changed
    copies = [fingerprint(wrong if r == fault.rank else right, None, salt) for r in range(n)]
    rows["R"].add(changed, verify_replicated(copies).alarm)
    some = [sample(x, salt, precision=precision) for x in xs]
    verdict = verify_allreduce(wrong, n, seed=salt, level="T2", samples=some, precision=precision)
    rows["T2"].add(changed, verdict.alarm)
    checksums = [signed_checksum(x, salt, block=64, precision=precision) for x in xs]
    rows["T1"].add(
        changed,
        verify_allreduce(
            wrong, n, seed=salt, level="T1", checksums=checksums, precision=precision
        ).alarm,
    )
    if not precision:
        exact = injector.inject_sum(fault, xs, ordered_sum)
        rows["T3"].add(
            injector.changed, verify_allreduce(exact, n, seed=salt, level="T3", inputs=xs).alarm
        )
    payload = [sum_canary((size,), n, r, salt, precision=precision) for r in range(n)]
    out = injector.inject_sum(fault, payload, add)
    rows["canary"].add(
        injector.changed, verify_allreduce(out, n, seed=salt, precision=precision).alarm
    )


def exact_steps(count: int, rng: Rng) -> list[Row]:
    """One bit of any step of the sum in a fixed order."""
    steps = ("all_to_all", "add", "all_gather")
    rows = {step: Row(f"exact all-reduce: bit flipped in {step}") for step in steps}
    for step, row in rows.items():
        for _ in range(count):
            n = int(rng.integers(2, 5))
            xs = [rng.standard_normal((3, 17)).astype("f4") for _ in range(n)]
            at = int(rng.integers(n))

            def flip(x: Array) -> Array:
                return flip_bits(x, [int(rng.integers(8 * x.nbytes))])

            def exchange(p: list[list[Array]], at: int = at) -> list[list[Array]]:
                out = [[row[r] for row in p] for r in range(len(p))]
                out[at][0] = flip(out[at][0])
                return out

            def gather(p: list[Array], at: int = at) -> list[list[Array]]:
                out = [list(p) for _ in p]
                out[at][0] = flip(out[at][0])
                return out

            def add(rank: int, p: Sequence[Array], at: int = at) -> Array:
                return flip(ordered_sum(p)) if rank == at else ordered_sum(p)

            given = {"all_to_all": exchange, "all_gather": gather, "add": add}
            row.add(True, exact_all_reduce(xs, 9, **{step: given[step]}).verdict.alarm)  # type: ignore[arg-type]
    return list(rows.values())


def sum_flips(count: int, rng: Rng) -> list[Row]:
    """One bit of one rank's copy of a sum, by its position: R and T3, and T1 for the record."""
    rows: list[Row] = []
    for first in range(0, 32, 8):
        r, t3, t1 = (
            Row(f"sum, f32, bits {first}-{first + 7}, {level}", required=level != "T1")
            for level in ("R", "T3", "T1")
        )
        for _ in range(count):
            xs = [rng.standard_normal(256).astype("f4") for _ in range(4)]
            y = ordered_sum(xs)
            z = flip_bits(y, [int(32 * rng.integers(256) + first + rng.integers(8))])
            copies = [fingerprint(v, None, 1) for v in (y, y, z, y)]
            verdict = verify_replicated(copies)
            r.add(True, verdict.alarm, verdict.culprit_ranks == (2,))
            t3.add(True, verify_allreduce(z, 4, seed=1, level="T3", inputs=xs).alarm)
            sums = [signed_checksum(x, 1, block=64) for x in xs]
            t1.add(True, verify_allreduce(z, 4, seed=1, level="T1", checksums=sums).alarm)
        rows += [r, t3, t1]
    return rows


def clean(count: int, rng: Rng) -> list[Clean]:
    """Runs without faults: random shapes, dtypes, ranks, orders of addition, special values."""
    move, add_up = Clean("clean: all-gather, any bits"), Clean("clean: pieces add up to the whole")
    for i in range(count):
        n, dim = int(rng.integers(1, 9)), int(rng.integers(3))
        parts = split(rng, n, dim, n > 1 and i % 2 == 0)
        dtype = str(rng.choice(DTYPES))
        salt = int(rng.integers(1 << 60))
        shards = [draw(rng, p.region().shape, dtype) for p in parts]
        sent = [fingerprint(s, p, salt) for s, p in zip(shards, parts, strict=True)]
        whole = np.concatenate(shards, axis=dim)
        verdict = verify_allgather(whole, parts, shard_fps=sent, key=salt)
        move.runs, move.alarms = move.runs + 1, move.alarms + (not verdict)
        rng.shuffle(sent)
        width = sent[0].width
        back: Fp = total(sent) - sent[0]
        add_up.runs += 1
        add_up.alarms += back + sent[0] != fingerprint(
            whole, Region.whole(whole.shape), salt, width=width
        )
    sums = {
        level: Clean(f"clean: all-reduce, any order, {level}") for level in ("T1", "T2", "canary")
    }
    for _ in range(count // 4):
        form = str(rng.choice(["f4", "f2", "f8", "bf16"]))
        precision = "bf16" if form == "bf16" else None
        n, size = int(rng.integers(2, 17)), int(rng.integers(1, 400))
        add, salt = adder(form, rng), int(rng.integers(1 << 60))
        scale = float(rng.choice([1, 1e-6, 1e-41, 1e3, 1e38]))
        with np.errstate(all="ignore"):
            xs: list[Array] = [
                (rng.standard_normal(size) * scale).astype("f4" if precision else form)
                for _ in range(n)
            ]
            if precision:
                xs = [widen(narrow(x)) for x in xs]
            if rng.random() < 0.2:
                xs[0][0] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
            if rng.random() < 0.2:
                xs[1] = -xs[0]
            y = add(xs)
            one = [signed_checksum(x, salt, block=64, precision=precision) for x in xs]
            two = [sample(x, salt, precision=precision) for x in xs]
            one_check = verify_allreduce(
                y, n, seed=salt, level="T1", checksums=one, precision=precision
            )
            two_check = verify_allreduce(
                y, n, seed=salt, level="T2", samples=two, precision=precision
            )
            found = {"T1": one_check, "T2": two_check}
            payload = [
                sum_canary((size,), n, r, salt, xs[0].dtype, precision=precision) for r in range(n)
            ]
            found["canary"] = verify_allreduce(add(payload), n, seed=salt, precision=precision)
        for level, verdict in found.items():
            sums[level].runs += 1
            sums[level].alarms += verdict.alarm
            sums[level].skipped += verdict.status == "skipped"
    return [move, add_up, *sums.values()]


def main() -> int:
    parser = argparse.ArgumentParser(description="faults injected into exchanges in numpy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="times the number of injections")
    args = parser.parse_args()
    rng, start = np.random.default_rng(args.seed), time.perf_counter()

    def times(n: int) -> int:
        return max(1, round(n * args.scale))

    print(f"seed {args.seed}, scale {args.scale:g}")
    print(f"  {'fault, check':58} {'injected':>8} {'no-ops':>6} {'found':>8} {'':7} located")
    step = 1 if args.scale >= 1 else 7
    rows: list[Row | Clean] = []
    for part in (
        lambda: [every_bit("f4", step), every_bit("f2", step), every_pair()],
        lambda: many_flips(times(1000), rng),
        lambda: moved(times(3), rng, args.seed),
        lambda: handoffs(times(300), rng),
        lambda: [races(times(200), rng)],
        lambda: sums(times(20), rng, args.seed),
        lambda: exact_steps(times(100), rng),
        lambda: sum_flips(times(100), rng),
        lambda: clean(times(4000), rng),
    ):
        for row in part():
            rows.append(row)
            print(row, flush=True)
    bad = [row for row in rows if row.bad]
    injected = sum(r.injected for r in rows if isinstance(r, Row) and r.required)
    runs = sum(r.runs for r in rows if isinstance(r, Clean))
    print(
        f"{injected} faults that have to be found, {runs} clean runs, "
        f"{time.perf_counter() - start:.0f} s: "
        + ("all found, no false alarm" if not bad else f"{len(bad)} rows are bad")
    )
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
