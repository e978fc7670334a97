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
from shardproof.synthesis.guard.fingerprint import (
    Fp,
    fingerprint,
    sample,
    sum_canary,
    total,
    verify_allgather,
    verify_allreduce,
)
from shardproof.synthesis.guard.fingerprint.floats import narrow, widen
from shardproof.synthesis.guard.fingerprint.region import Array, Region

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
    judged = {level: Clean(f"clean: all-reduce, any order, {level}") for level in ("T2", "canary")}
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
            two = [sample(x, salt, precision=precision) for x in xs]
            found = {
                "T2": verify_allreduce(
                    y, n, seed=salt, level="T2", samples=two, precision=precision
                )
            }
            payload = [
                sum_canary((size,), n, r, salt, xs[0].dtype, precision=precision) for r in range(n)
            ]
            found["canary"] = verify_allreduce(add(payload), n, seed=salt, precision=precision)
        for level, verdict in found.items():
            judged[level].runs += 1
            judged[level].alarms += verdict.alarm
            judged[level].skipped += verdict.status == "skipped"
    return [move, add_up, *judged.values()]


def bits(scale: float, rng: Rng, seed: int) -> Sequence[Row]:
    """Every bit alone and every pair; those do not scale up."""
    step = 1 if scale >= 1 else 7
    return [every_bit("f4", step), every_bit("f2", step), every_pair()]


def times(count: int, scale: float) -> int:
    """`count` at this scale, at least 1."""
    return max(1, round(count * scale))


PARTS: dict[str, Callable[[float, Rng, int], Sequence[Row | Clean]]] = {
    "bits": bits,
    "flips": lambda s, rng, seed: many_flips(times(10_000, s), rng),
    # 34 of each kind, dtype, number of ranks, dim, even and not: 200 of kind, dtype and ranks
    "moves": lambda s, rng, seed: moved(times(34, s), rng, seed),
    "handoffs": lambda s, rng, seed: handoffs(times(1000, s), rng),
    "races": lambda s, rng, seed: [races(times(200, s), rng)],
    "sums": lambda s, rng, seed: sums(times(200, s), rng, seed),
    "exact": lambda s, rng, seed: exact_steps(times(200, s), rng),
    "sum flips": lambda s, rng, seed: sum_flips(times(1600, s), rng),
    "clean": lambda s, rng, seed: clean(times(20_000, s), rng),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="faults injected into exchanges in numpy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="times the number of injections")
    parser.add_argument("--part", choices=PARTS, help="this part alone, the same as in a whole run")
    args = parser.parse_args()
    start = time.perf_counter()
    print(f"seed {args.seed}, scale {args.scale:g}")
    print(f"  {'fault, check':58} {'injected':>8} {'no-ops':>6} {'found':>8} {'':7} located")
    rows: list[Row | Clean] = []
    for number, (name, part) in enumerate(PARTS.items()):
        if args.part in (None, name):
            rng = np.random.default_rng([args.seed, number])
            for row in part(args.scale, rng, args.seed):
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
