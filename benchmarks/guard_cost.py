"""What the guard costs, from steps with it and steps without, in turns, in the same processes.

Steps come in pairs, one without the guard and one with it, whose order alternates, so that a drift
of the machine falls on both alike. Of a step the processor time of all ranks is taken, and the wall
clock of rank 0.

A cycle of the guard has steps of two kinds, one that is watched and some that are not. They are
measured apart and weighed as they come in a cycle, so that few watched steps among many others are
no noise of their own. A kind's cost is the mean of the middle half of its pairs' ratios, as
logarithms: steps that lie beside each other share the state of the machine, and a pair in which one
was disturbed falls away. The interval, at 95 %, is that of the bootstrap (Efron and Tibshirani
1993, 13.3), pairs drawn anew within each kind.

The verdict on `LIMIT` has three outcomes. Both intervals end below it: shown, exit 0. One lies
above it: exit 1. Anything else is *not shown*, exit 2: a machine on which other processes run can
neither pass the check nor fail it. The number of pairs is set before the measurement, from the time
of a step, and is not changed by what was seen. `null` compares steps without the guard with such
steps: what it says besides 0 is the error of the method.
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

import numpy as np

LIMIT = 0.02
DRAWS = 2000


@dataclass(frozen=True)
class Estimate:
    """A value, and the interval that holds it at 95 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.2%} ({self.low:+.2%} to {self.high:+.2%})"


@dataclass(frozen=True)
class Kind:
    """Steps of one kind, and the steps without the guard that they came with."""

    weight: float
    """How many of the steps of a cycle are of this kind."""
    with_it: np.ndarray[Any, Any]
    without: np.ndarray[Any, Any]

    def drawn(self, rng: np.random.Generator) -> Kind:
        """As many of its pairs, drawn anew."""
        at = rng.integers(0, len(self.without), len(self.without))
        return Kind(self.weight, self.with_it[at], self.without[at])


def more(kind: Kind) -> float:
    """What a step of this kind costs more, as a part of a step without the guard."""
    ratios = np.sort(np.log(kind.with_it / kind.without))
    quarter = len(ratios) // 4
    return float(np.expm1(ratios[quarter : len(ratios) - quarter].mean()))


def cost(kinds: Sequence[Kind]) -> float:
    """What a step costs more on the mean of a cycle."""
    return sum(k.weight * more(k) for k in kinds)


def estimate(kinds: Sequence[Kind], seed: int = 0, draws: int = DRAWS) -> Estimate:
    """The cost and its interval; everything where a kind has fewer than 6 pairs."""
    if any(len(k.without) < 6 for k in kinds):
        return Estimate(cost(kinds), float("-inf"), float("inf"))
    rng = np.random.default_rng(seed)
    drawn = [cost([k.drawn(rng) for k in kinds]) for _ in range(draws)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(cost(kinds), float(low), float(high))


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


def steps(step: Callable[[], None], seconds: float, null: bool) -> dict[str, Any]:
    """Pairs of steps on this rank, for about so many seconds: each a step with the guard and one
    without, (wall, processor), and whether the first was watched.

    The guard is taken off and put on between steps, outside of what is timed. What it does itself
    at the turn of a step, it does in the optimizer's step, which is timed.
    """
    import torch
    import torch.distributed as dist

    from shardproof.synthesis.guard import active

    guard = active()
    assert guard is not None
    watched: list[bool] = []

    def one() -> tuple[float, float]:
        dist.barrier()
        a, b = time.perf_counter(), time.process_time()
        step()
        dist.barrier()
        return time.perf_counter() - a, time.process_time() - b

    def switch(on: bool) -> None:
        if on and not null:
            guard.resume()
            watched.append(guard.watching)
        else:
            guard.pause()
            watched.extend([False] * on)

    guard.step()  # the first step is watched whole
    guard.pause()
    for _ in range(5):
        step()
    mean = torch.tensor([sum(one()[0] for _ in range(5)) / 5])
    dist.all_reduce(mean, op=dist.ReduceOp.MAX)
    pairs = in_pairs(max(60, int(seconds / (2 * float(mean)))), one, switch)
    guard.resume()
    rows = [(*pair, w) for pair, w in zip(pairs, watched, strict=True)]
    return {**guard.summary(), "cycle": guard.cycle, "pairs": rows}


def report(results: Sequence[dict[str, Any]], every: int, null: bool) -> int:
    """Says what the steps of all ranks say; the exit code."""
    first = results[0]
    what = "no guard in either step" if null else f"every={every}, cycle={first['cycle']}"
    is_watched = np.array([row[2] for row in first["pairs"]])
    print(
        f"{len(results)} processes, {what}: {len(is_watched)} pairs of steps, {is_watched.sum()} "
        f"watched; {first['sampled']} of {first['calls']} calls seen were looked at, "
        f"{first['alarms']} alarms"
    )
    table = np.array([[row[:2] for row in r["pairs"]] for r in results])
    times = {"processor time": table[..., 1].sum(0), "wall clock": table[0, ..., 0]}
    found: list[Estimate] = []
    for name, pairs in times.items():
        kinds: list[Kind] = []
        for watched, weight in ((True, 1 / first["cycle"]), (False, 1 - 1 / first["cycle"])):
            if weight and not null:
                mine = pairs[is_watched == watched]
                kinds.append(Kind(weight, mine[:, 0], mine[:, 1]))
        kinds = kinds or [Kind(1, pairs[:, 0], pairs[:, 1])]
        base = np.median(pairs[:, 1])
        said = ", ".join(
            f"{'watched' if k is kinds[0] and not null else 'other'} {more(k):+.1%}" for k in kinds
        )
        found.append(estimate(kinds))
        print(f"  {name:15} {base * 1e3:8.2f} ms a step without; {said}; together {found[-1]}")
    code, said = verdict(found)
    print(f"  {said}")
    return code


def per_call(folder: Path, pairs: int, calls: int = 100) -> None:
    """Prints what one call costs more that is not looked at, by kind: processor time of the thread
    that calls, two gloo processes. A measurement, with no verdict."""
    from shardproof.synthesis.execute.child import fork, wait

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    wait([fork(lambda r=r: _calling(folder, r, pairs, calls)) for r in range(2)])


def _calling(folder: Path, rank: int, pairs: int, calls: int) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as funcol

    from shardproof.synthesis.guard import Guard

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
