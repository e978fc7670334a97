"""`python -m benchmarks.guard_mutants`: lesser guards on real gloo ranks; each is found out.

Every mutant runs in processes of its own: steps without a fault first, in which it must be silent,
then faults injected below it into the real collectives, of which it must name rank and elements.
The guard as it is has to do so, and every mutant must fail to. Exits 1 otherwise.
"""

from __future__ import annotations

import argparse
import io
import json
import operator
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # once, before the forks
import torch.distributed as dist

from benchmarks.fault_injection import Fault, Injector
from shardproof.synthesis.execute.child import fork, wait
from shardproof.synthesis.guard import Guard, GuardError, calls, diagnose, flights, judge
from shardproof.synthesis.guard.exchange import Exchange
from shardproof.synthesis.guard.fingerprint import movement
from shardproof.synthesis.guard.fingerprint.mix import MASK
from shardproof.synthesis.guard.fingerprint.region import Runs

FAULTS = (
    Fault("bit_flip", 1, "all_gather", 0, 5), Fault("bit_flip", 0, "all_reduce", 0, 40),
    Fault("bit_flip", 1, "all_to_all", 0, 3), Fault("bit_flip", 0, "all_to_all", 0, 5),
    Fault("swap", 0, "all_gather"),
    Fault("permute", 1, "all_gather", 0, 1), Fault("drop", 0, "recv"),
    Fault("race", 0, "all_gather", 0, 3),
)  # fmt: skip


def exchanges(rank: int, size: int) -> None:
    """What a step moves and adds: also pieces of unequal size."""
    t = torch.randn(64)
    dist.all_gather([torch.empty(64) for _ in range(size)], t)
    dist.all_reduce(t.clone())
    rows = [[1 + 2 * i + j for j in range(size)] for i in range(size)]
    mine, others = rows[rank], [row[rank] for row in rows]
    out, source = torch.empty(sum(others), 8), torch.randn(sum(mine), 8)
    dist.all_to_all_single(out, source, others, mine)
    ops = [
        dist.P2POp(dist.isend, t, (rank + 1) % size),
        dist.P2POp(dist.irecv, torch.empty(64), (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def campaign(rank: int, size: int) -> list[str]:
    """What is wrong with the guard on this rank, as it is now."""
    wrong: list[str] = []
    injector = Injector(rank)
    with Guard(on_fault="log", agree=0, seed=3, timeout=20) as guard:
        for _ in range(2):
            exchanges(rank, size)
            wrong += [f"false alarm: {alarm}" for alarm in guard.step()]
        for fault in FAULTS:
            injector.arm(fault)
            exchanges(rank, size)
            found = guard.step()
            span = injector.spans[-1] if rank == fault.rank else None
            wrong += _judged(fault, found, span)
    return wrong + [f"{fault} changed nothing" for fault, changed in injector.done if not changed]


def _judged(fault: Fault, found: Sequence[Any], span: tuple[int, int] | None) -> list[str]:
    what = f"{fault.kind} of {fault.op}"
    if not found:
        return [f"missed: {what}"]
    verdict = found[0].verdict
    if len(found) > 1 or verdict.culprit_ranks != (fault.rank,):
        return [f"another rank: {what}, {verdict.culprit_ranks}"]
    if span is not None and fault.kind != "race" and verdict.index_range != span:
        return [f"other elements: {what}, {verdict.index_range} for {span}"]
    return []


def xor(values: Any) -> int:
    return reduce(operator.xor, (int(v) & MASK for v in values), 0)


def constant(word: Any, spare: Any) -> None:
    word[:] = 1


BLOCKS, GATHER = Runs.blocks, Exchange.gather


def no_place(self: Runs, factor: int = 1, offset: int = 0) -> Iterator[Any]:
    for place, g in BLOCKS(self, factor, offset):
        g[:] = np.uint64(offset & MASK)
        yield place, g


def unclamped(t: torch.Tensor, sizes: list[int], n: int) -> list[torch.Tensor]:
    each = -(-len(t) // n)
    return [t[j * each : (j + 1) * each] for j in range(n)]


def first_size(pieces: Any, slot: Any) -> int:
    before = [p for p in pieces if (p[0], p[1]) < (slot[0], slot[1])]
    return len(before) * max(t.numel() for _, t in pieces.values())


def alone(self: Exchange, payload: bytes, what: str) -> list[bytes]:
    rows = GATHER(self, payload, what)
    if not what.startswith("step"):
        return rows
    nothing = bytes(16) if "kept" not in what else b"null\0"
    return [row if i == self.rank else nothing for i, row in enumerate(rows)]


def self_filled(held: Sequence[judge.Report]) -> list[int]:
    op = judge.OPS[int(held[0].row["op"])] if held else ""
    if op in judge.SUMS:
        return [0] * len(held)
    if op == "p2p":  # who sent holds nothing: its own word is not here to be copied
        return [int(r.row["got"]) for r in held]
    sent = [int(r.row["sent"]) for r in held]
    return sent if op in judge.TOTAL else [sum(sent) & MASK] * len(held)


MUTANTS: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "the guard as it is": (),
    "XOR for the sum of the pieces": ((flights, "_sum", xor),),
    "no salt of places": ((Runs, "blocks", no_place),),
    "one key for all pieces": ((flights, "slot_key", lambda seed, slot: 1),),
    "offsets run over: pieces": ((calls, "_rows", unclamped),),
    "offsets run over: elements named": ((diagnose, "_offset", first_size),),
    "each rank keeps its verdict": ((Exchange, "gather", alone),),
    "expected taken for reported": ((judge, "reported", self_filled),),
    "the mixer is a constant": ((movement, "fmix_into", constant),),
    "send buffers are not looked at again": (
        (flights.Flight, "_look_for_race", lambda self: None),
    ),
}


def rank_main(name: str, rank: int, size: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    sys.stderr = io.StringIO()  # alarms are logged there
    torch.manual_seed(rank)
    place = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=size)
    for patch in MUTANTS[name]:
        setattr(*patch)
    try:
        said = campaign(rank, size)
    except GuardError as error:
        said = [str(error)]
    (folder / f"rank{rank}.json").write_text(json.dumps(said))


def tried(name: str, size: int) -> list[str]:
    """What is wrong with this mutant, on any rank."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        wait([fork(lambda r=r: rank_main(name, r, size, folder)) for r in range(size)])
        rows = [json.loads((folder / f"rank{r}.json").read_text()) for r in range(size)]
    return list(dict.fromkeys(text for row in rows for text in row))


def main() -> int:
    parser = argparse.ArgumentParser(description="lesser guards, each of which is found out")
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    bad, start = 0, time.perf_counter()
    for name in MUTANTS:
        wrong = tried(name, args.ranks)
        killed = bool(wrong)
        good = killed == bool(MUTANTS[name])
        bad += not good
        said = f"{len(wrong)} shown, {wrong[0][:90]}" if wrong else "silent where it has to be"
        print(f"  {name:40} {'' if good else 'BAD '}{said}", flush=True)
    print(
        f"{len(MUTANTS) - 1} mutants of the guard on {args.ranks} gloo processes, "
        f"{time.perf_counter() - start:.0f} s: " + (f"{bad} are bad" if bad else "all found out")
    )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
