"""Faults of sums over ranks, at every level of checking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.fault_kinds import SUMS, FaultInjector, flip_bits
from benchmarks.fault_rows import Row
from shardproof.synthesis.guard.fingerprint import (
    exact_all_reduce,
    fingerprint,
    ordered_sum,
    sample,
    sum_canary,
    verify_allreduce,
    verify_replicated,
)
from shardproof.synthesis.guard.fingerprint.floats import narrow, widen
from shardproof.synthesis.guard.fingerprint.region import Array

Rng = np.random.Generator


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


LEVELS = ("canary", "R", "T2", "T3")
LOCAL = {"zero_tail"}


def sums(count: int, rng: Rng, seed: int, size: int = 2048) -> list[Row]:
    """Faults of an all-reduce, at every level."""
    injector = FaultInjector(seed)
    rows: list[Row] = []
    for kind in SUMS:
        by_level = {
            level: Row(
                f"all-reduce: {kind}, {level}",
                required=not (kind in LOCAL and level == "T2"),
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

            faulty = {
                "all_to_all": partial(exact_all_reduce, all_to_all=exchange),
                "all_gather": partial(exact_all_reduce, all_gather=gather),
                "add": partial(exact_all_reduce, add=add),
            }
            row.add(True, faulty[step](xs, 9).verdict.alarm)
    return list(rows.values())


def sum_flips(count: int, rng: Rng) -> list[Row]:
    """One bit of one rank's copy of a sum, by its position: R and T3."""
    rows: list[Row] = []
    for first in range(0, 32, 8):
        r, t3 = (
            Row(f"sum, f32, bits {first}-{first + 7}, {level}", required=True)
            for level in ("R", "T3")
        )
        for _ in range(count):
            xs = [rng.standard_normal(256).astype("f4") for _ in range(4)]
            y = ordered_sum(xs)
            z = flip_bits(y, [int(32 * rng.integers(256) + first + rng.integers(8))])
            copies = [fingerprint(v, None, 1) for v in (y, y, z, y)]
            verdict = verify_replicated(copies)
            r.add(True, verdict.alarm, verdict.culprit_ranks == (2,))
            t3.add(True, verify_allreduce(z, 4, seed=1, level="T3", inputs=xs).alarm)
        rows += [r, t3]
    return rows
