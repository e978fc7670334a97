"""`python -m benchmarks.faults`: faults injected into exchanges in numpy, and what the checks say.

A fault that changes no byte is counted apart. 0 misses in N faults bound the rate of misses by 3/N
at 95 %. Everything is drawn from the seed that is printed. Exits 1 on a miss of a check that claims
to see the fault, on a wrong rank named for a fault of one rank, and on any false alarm.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from benchmarks.fault_moves import (
    DTYPES,
    draw,
    every_bit,
    every_pair,
    handoffs,
    many_flips,
    moved,
    races,
    split,
)
from benchmarks.fault_rows import Clean, Row
from benchmarks.fault_sums import adder, exact_steps, sum_flips, sums
from verifier.fingerprint import (
    Fp,
    fingerprint,
    sample,
    signed_checksum,
    sum_canary,
    total,
    verify_allgather,
    verify_allreduce,
)
from verifier.fingerprint.floats import narrow, widen
from verifier.fingerprint.region import Array, Region

Rng = np.random.Generator


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
    judged = {
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
            judged[level].runs += 1
            judged[level].alarms += verdict.alarm
            judged[level].skipped += verdict.status == "skipped"
    return [move, add_up, *judged.values()]


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
