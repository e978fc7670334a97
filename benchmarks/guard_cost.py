"""What the guard costs, from blocks with it and blocks without, in turns, in the same processes.

Blocks come in pairs, whose order alternates (with, without, without, with, ...), so that a drift of
the machine falls on both alike. A pair gives one ratio; the estimate is the median of the ratios,
and its interval, at 95 %, lies between two of them by their rank (the sign test: no assumption on
how times are distributed). Of a block of steps the processor time of all ranks is taken, and the
wall clock of rank 0.

The verdict on `LIMIT` has three outcomes. Both intervals end below it: shown, exit 0. One lies
above it: exit 1. Anything else is *not shown*, exit 2: a machine on which other processes run can
neither pass the check nor fail it. The number of pairs is set before the measurement, from the time
of a step, and is not changed by what was seen. `null` compares blocks without the guard with such
blocks: what it says besides 0 is the error of the method.
"""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

LIMIT = 0.02
BLOCK = 10
"""Steps of a block. Of the guard's default cycle of 10 steps each block has one: all its costs are
in every block, a step that is watched, switching kernels twice, and a comparison."""


@dataclass(frozen=True)
class Estimate:
    """A median, and the interval that holds it at 95 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.2%} ({self.low:+.2%} to {self.high:+.2%})"


def median(rows: Sequence[float]) -> Estimate:
    """The median of what these were drawn from: the k-th smallest and the k-th largest hold it
    between them but for 2 P(Bin(n, 1/2) < k); k is the largest for which that is at most 5 %.

    With fewer than 6 rows there is no such k, and the interval is everything.
    """
    rows, n = sorted(rows), len(rows)
    k, tail = 0, 0.0
    while k < n // 2 and 2 * (tail + comb(n, k) / 2**n) <= 0.05:
        tail += comb(n, k) / 2**n
        k += 1
    low, high = (rows[k - 1], rows[n - k]) if k else (float("-inf"), float("inf"))
    return Estimate(statistics.median(rows), low, high)


def verdict(found: Sequence[Estimate], limit: float = LIMIT) -> tuple[int, str]:
    """(exit code, what is said)."""
    if any(e.low > limit for e in found):
        return 1, f"above {limit:.0%}"
    if all(e.high <= limit for e in found):
        return 0, f"at most {limit:.0%}"
    return 2, f"not shown to be at most {limit:.0%}: measure longer, or where nothing else runs"


def in_pairs(
    count: int, block: Callable[[], Any], switch: Callable[[bool], None]
) -> list[tuple[Any, Any]]:
    """(with, without) of each pair of blocks."""
    rows: list[tuple[Any, Any]] = []
    for pair in range(count):
        found: dict[bool, Any] = {}
        for on in (True, False) if pair % 2 else (False, True):
            switch(on)
            found[on] = block()
        rows.append((found[True], found[False]))
    return rows


def steps(
    step: Callable[[], None], warm: Callable[[], None], seconds: float, null: bool
) -> dict[str, Any]:
    """Pairs of blocks of steps on this rank, for about so many seconds: (wall, processor) each.

    `warm` is what a step does without its optimizer, once before a block: the kernels are new
    there, and the comparisons of the guard, which come with the optimizer, stay one a block.
    """
    import torch
    import torch.distributed as dist

    from synthesis.guard import active

    guard = active()
    assert guard is not None

    def block() -> tuple[float, float]:
        warm()
        dist.barrier()
        a, b = time.perf_counter(), time.process_time()
        for _ in range(BLOCK):
            step()
        dist.barrier()
        return (time.perf_counter() - a) / BLOCK, (time.process_time() - b) / BLOCK

    guard.pause()
    for _ in range(3):
        step()
    one = torch.tensor([block()[0]])
    dist.all_reduce(one, op=dist.ReduceOp.MAX)
    pairs = max(8, int(seconds / (float(one) * 2 * (BLOCK + 1))))
    rows = in_pairs(pairs, block, lambda on: guard.resume() if on and not null else guard.pause())
    guard.resume()
    return {**guard.summary(), "pairs": rows}


def report(results: Sequence[dict[str, Any]], every: int, null: bool) -> int:
    """Says what the steps of all ranks say; the exit code."""
    first = results[0]
    times = {
        "processor time": [
            [sum(r["pairs"][i][k][1] for r in results) for i in range(len(first["pairs"]))]
            for k in (0, 1)
        ],
        "wall clock": [[pair[k][0] for pair in first["pairs"]] for k in (0, 1)],
    }
    what = "nothing in either block" if null else f"every={every}"
    print(
        f"{len(results)} processes, {what}, {len(first['pairs'])} pairs of blocks of {BLOCK} "
        f"steps; {first['watched']} of {first['steps']} steps watched, and {first['sampled']} of "
        f"their {first['calls']} calls looked at; {first['alarms']} alarms"
    )
    found: list[Estimate] = []
    for name, (on, off) in times.items():
        found.append(median([a / b - 1 for a, b in zip(on, off, strict=True)]))
        print(
            f"  {name:15} without {statistics.median(off) * 1e3:8.2f} ms, with "
            f"{statistics.median(on) * 1e3:8.2f} ms a step: {found[-1]}"
        )
    code, said = verdict(found)
    print(f"  {said}")
    return code


def per_call(folder: Path, pairs: int, calls: int = 100) -> None:
    """Prints what one call costs more that is not looked at, by kind: processor time of the thread
    that calls, two gloo processes. A measurement, with no verdict."""
    from synthesis.execute.child import fork, wait

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    wait([fork(lambda r=r: _calling(folder, r, pairs, calls)) for r in range(2)])


def _calling(folder: Path, rank: int, pairs: int, calls: int) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as funcol

    from synthesis.guard import Guard

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/calls", rank=rank, world_size=2)
    guard = Guard(every=1 << 30, calls=1 << 30).start()
    t, out, world = torch.ones(4), torch.empty(8), dist.group.WORLD
    kinds: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(t),
        "all_reduce, asynchronous": lambda: dist.all_reduce(t, async_op=True).wait(),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(out, t),
        "functional all_reduce": lambda: funcol.wait_tensor(funcol.all_reduce(t, "sum", world)),
        "send or receive": lambda: dist.recv(t, 0) if rank else dist.send(t, 1),
    }
    for name, call in kinds.items():

        def block(call: Callable[[], Any] = call) -> float:
            for _ in range(20):
                call()
            dist.barrier()
            start = time.thread_time()
            for _ in range(calls):
                call()
            return (time.thread_time() - start) / calls * 1e6

        rows = in_pairs(pairs, block, lambda on: guard.resume() if on else guard.pause())
        more = median([a - b for a, b in rows])
        if rank == 0:
            print(
                f"  {name:26} {statistics.median(b for _, b in rows):6.1f} us, with the guard "
                f"{more.value:+5.1f} ({more.low:+.1f} to {more.high:+.1f})",
                flush=True,
            )
    dist.barrier()
