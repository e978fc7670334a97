"""What ranks do in the tests: `python programs.py FOLDER` runs every scenario, ranks forked from
one process, and leaves what each rank said as JSON. Ranks end without teardown, which is flaky."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # imported once, before the forks: gloo groups and optimizers ask for it
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from benchmarks.fault_injection import Fault, Injector
from shardproof.synthesis.guard import FaultError, Guard, active, kernels, watch
from shardproof.synthesis.guard.exchange import Exchange
from shardproof.synthesis.guard.meeting import COURTESY
from tests.guard.cycles import (
    group_made_unwatched,
    killed_unwatched,
    other_sides,
    watched_steps,
)
from tests.guard.oddities import (
    changed_results,
    compiled_optimizer,
    errors_of_its_own,
    groups_come_and_go,
    manual_steps,
    over_before,
    over_together,
    raised_unwatched,
    threads,
)

LIMIT = 30.0


def every_call(r: int, n: int) -> None:
    """All kinds of calls, sync and async, c10d and functional."""
    t, world = torch.randn(100), dist.group.WORLD
    dist.all_gather([torch.empty(100) for _ in range(n)], t)
    dist.all_reduce(t.clone())
    held = t.clone()
    dist.all_reduce(held, async_op=True).wait()
    dist.all_gather_into_tensor(torch.empty(100 * n), t)
    dist.reduce_scatter_tensor(torch.empty(100), torch.randn(100 * n))
    dist.reduce_scatter(torch.empty(2), [torch.randn(2) for _ in range(n)])
    dist.broadcast(t.clone(), 0)
    dist.all_to_all_single(torch.empty(100), t)
    dist.all_to_all([torch.empty(2) for _ in range(n)], [torch.randn(2) for _ in range(n)])
    ops = [
        dist.P2POp(dist.isend, t, (r + 1) % n),
        dist.P2POp(dist.irecv, torch.empty(100), (r - 1) % n),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    dist.scatter(torch.empty(4), [torch.randn(4) for _ in range(n)] if r == 0 else None, src=0)
    dist.gather(t, [torch.empty(100) for _ in range(n)] if r == 0 else None, dst=0)
    dist.reduce(t.clone(), 0)
    dist.all_reduce(torch.randint(0, 250, (50,), dtype=torch.uint8))
    dist.all_reduce(torch.randn(100).bfloat16(), op=dist.ReduceOp.MAX)
    dist.all_reduce(torch.full((64,), float("inf")))
    dist.all_reduce_coalesced([t.clone(), t.clone()])
    total: Any = funcol.all_reduce(t, "avg", world) + 1
    total = funcol.all_gather_tensor(t, 0, world) + 1
    total = funcol.reduce_scatter_tensor(t, "sum", 0, world) + 1
    total = funcol.all_to_all_single(t, None, None, world) + 1
    with torch.inference_mode():
        dist.all_reduce(torch.ones(8))
    del total
    dist.all_gather_object([None] * n, {"a": r})


def sharded_models(n: int) -> None:
    """FSDP, DTensor and DDP, forward and backward."""
    mesh = init_device_mesh("cpu", (n,))
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
    fully_shard(model, mesh=mesh)
    model(torch.randn(4, 16)).sum().backward()
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
    parallelize_module(model, mesh, plan)(torch.randn(4, 16, requires_grad=True)).sum().backward()
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    wrapped(torch.randn(4, 16)).sum().backward()


def clean(r: int, n: int) -> Any:
    said: dict[str, Any] = {}
    for level in ("R", "T3"):
        with Guard(level=level, seed=5) as guard:  # type: ignore[arg-type]
            every_call(r, n)
            guard.step()
            sharded_models(n)
            guard.step()
        said[level] = guard.summary()
    with Guard(every=7, seed=5, agree=0, canary=False) as guard:
        for _ in range(3):
            every_call(r, n)
    return {**said, "every": guard.summary()}


def odd_calls(r: int, n: int) -> Any:
    """Messages from any source; then strides that differ, where gloo adds other elements."""
    with Guard(level="T3", on_fault="log") as guard:
        for size in (4, 5, 6):
            if r:
                dist.send(torch.randn(size), 0)
            else:
                dist.recv(torch.empty(size), None if size == 4 else 1)
        guard.step()
        before = len(guard.alarms)
        x = torch.randn(2, 3, 4, 5)
        dist.all_reduce(x.to(memory_format=torch.channels_last) if r else x)
        guard.step()
    return before, [str(alarm) for alarm in guard.alarms]


FAULTS = [
    Fault("bit_flip", 1, "all_gather", 0, 5), Fault("bit_flip", 1, "all_reduce", 0, 71),
    Fault("drop", 0, "all_gather", 1, 0), Fault("swap", 0, "all_gather"),
    Fault("duplicate", 1, "all_gather", 1), Fault("stale", 1, "all_gather"),
    Fault("not_reduced", 1, "all_reduce"), Fault("missing_rank", 1, "all_reduce"),
    Fault("missing_rank", 0, "reduce_scatter"), Fault("drop", 1, "reduce_scatter"),
    Fault("wrong_handoff", 1, "recv"), Fault("race", 0, "send", 0, 3),
    Fault("race", 1, "all_gather", 0, 3), Fault("bit_flip", 1, "all_to_all", 0, 77),
    Fault("bit_flip", 0, "broadcast", 0, 9), Fault("bit_flip", 1, "scatter", 0, 9),
]  # fmt: skip


def faults(r: int, n: int) -> Any:
    injector = Injector(r)
    rows: list[Any] = []
    with Guard(agree=2) as guard:
        every_call(r, n)
        guard.step()
        for fault in FAULTS:
            injector.arm(fault)
            step, said = guard.steps, ""
            every_call(r, n)
            try:
                guard.step()
            except FaultError as error:
                said = str(error)
            alarm = guard.alarms[-1] if said else None
            culprits = list(alarm.verdict.culprit_ranks) if alarm else []
            rows.append([said, culprits, alarm.step == step if alarm else False])
        guard.level = "T3"
        injector.arm(Fault("bit_flip", 1, "reduce_scatter", 0, 1))
        every_call(r, n)
        try:
            guard.step()
            exact = ""
        except FaultError as error:
            exact = str(error)
    return {"rows": rows, "exact": exact, "done": [changed for _, changed in injector.done]}


def without_work(r: int, n: int) -> Any:
    """NCCL gives no Work where a call is not `async_op`: what follows on the stream comes later."""
    work_of = kernels.work_of

    def waited(result: Any) -> None:
        work = work_of(result)
        if work is not None:
            work.wait()

    injector = Injector(r)
    kernels.work_of = waited  # type: ignore[assignment]
    try:
        with Guard(on_fault="log", agree=0, canary=False) as guard:
            injector.arm(Fault("bit_flip", 1, "all_gather", 0, 5))
            for _ in range(2):
                buffer = torch.empty(100 * n)
                dist.all_gather_into_tensor(buffer, torch.randn(100))
                buffer.zero_()  # it is the program's again
            guard.step()
            return [str(a) for a in guard.alarms], guard.summary()["unjudged"]
    finally:
        kernels.work_of = work_of
        injector.remove()


def verdict_kept(r: int, n: int) -> Any:
    """A lesser guard: every rank judges what it has itself, and tells nobody."""
    gather = Exchange.gather

    def alone(self: Exchange, payload: bytes, what: str) -> list[bytes]:
        rows = gather(self, payload, what)
        empty = bytes(16)
        return [x if i == r else empty for i, x in enumerate(rows)]

    injector = Injector(r)
    with Guard(on_fault="log") as guard:
        every_call(r, n)
        guard.step()
        Exchange.gather = alone  # type: ignore[method-assign]
        injector.arm(Fault("bit_flip", 1, "all_gather", 0, 5))
        dist.all_gather_into_tensor(torch.empty(2 * n), torch.ones(2))
        found = guard.step()
        Exchange.gather = gather  # type: ignore[method-assign]
    return len(found)


def another_dtype(r: int, n: int) -> Any:
    Guard(timeout=8).start()
    dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(4, dtype=torch.float64 if r else torch.float32))


def another_op(r: int, n: int) -> Any:
    Guard(timeout=8).start()
    if r:
        dist.broadcast(torch.ones(4), 0)
    else:
        dist.all_reduce(torch.ones(4))


def another_size_late(r: int, n: int) -> Any:
    """Rank 1 comes long after the others stopped waiting for it: they are in the call already."""
    Guard(timeout=8).start()
    other = dist.new_group()
    if r == 1:
        time.sleep(COURTESY + 1)
        work = dist.all_reduce(torch.ones(5), async_op=True)
    elif r == 2:
        total: Any = funcol.all_reduce(torch.ones(4), "sum", dist.group.WORLD) + 1
        return total
    else:
        work = dist.all_reduce(torch.ones(4), async_op=True)
    work.wait()
    return other


def orders(r: int, n: int) -> Any:
    """Calls over two groups, not waited for, that two ranks make in opposite orders; then one that
    waits for a message which is sent after another was called."""
    pairs = [dist.new_group(), dist.new_group()]
    with Guard(seed=5, timeout=20) as guard:
        start = time.monotonic()
        for i in range(guard.agree + 2):
            mine = [torch.full((8,), float(i)), torch.full((8,), float(i))]
            order = (0, 1) if r else (1, 0)
            works = [dist.all_reduce(mine[k], group=pairs[k], async_op=True) for k in order]
            for work in works:
                work.wait()
            assert all(bool((t == n * i).all()) for t in mine)
        t, message = torch.ones(4), torch.zeros(4)
        if r:
            dist.recv(message, 0)
        work = dist.all_reduce(t, async_op=True)
        if not r:
            dist.send(message, 1)
        work.wait()
        seconds = time.monotonic() - start
        guard.step()
    return [seconds, guard.summary()]


def orders_with_sums(r: int, n: int) -> Any:
    """The same, with sums that the guard adds over the groups before the call."""
    pairs = [dist.new_group(), dist.new_group()]
    with Guard(level="T3", timeout=2):
        order = (0, 1) if r else (1, 0)
        works = [dist.all_reduce(torch.ones(4), group=pairs[k], async_op=True) for k in order]
        for work in works:
            work.wait()


def other_settings(r: int, n: int) -> Any:
    Guard(every=1 + r).start()


def _linear(n: int, rows: int = 8) -> tuple[Any, Any]:
    mesh = init_device_mesh("cpu", (n,), mesh_dim_names=("tp",))
    model = torch.nn.Sequential(torch.nn.Linear(4, rows, bias=False))
    return parallelize_module(model, mesh, {"0": ColwiseParallel()}), mesh


def right_plan(r: int, n: int) -> Any:
    guard = watch(*_linear(n), {"0.weight": "[tp 4] [4]"}, every=1)
    assert guard is active()
    return True


def other_plans(r: int, n: int) -> Any:
    watch(*_linear(n), {"0.weight": "[tp 4] [4]" if r else "[8] [tp 2]"})


def uneven(r: int, n: int) -> Any:
    watch(*_linear(n, 7), {"0.weight": "[tp 4] [4]"})


def too_few_rows(r: int, n: int) -> Any:
    watch(*_linear(n, 1), {"0.weight": "[1] [4]"})


def wrong_dim(r: int, n: int) -> Any:
    watch(*_linear(n), {"0.weight": "[8] [tp 2]"})


def killed(r: int, n: int) -> Any:
    guard = Guard(timeout=10).start()
    for i in range(5):
        dist.all_reduce(torch.ones(4))
        if r == 1 and i == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        guard.step()


def killed_in_a_call(r: int, n: int) -> Any:
    Guard(timeout=10, agree=0, canary=False).start()
    if r == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4))


def late(r: int, n: int) -> Any:
    guard = Guard(timeout=2).start()
    if r == 1:
        time.sleep(6)
    guard.step()


SCENARIOS: dict[str, tuple[int, Callable[[int, int], Any]]] = {
    f.__name__: (2, f)
    for f in (
        clean, odd_calls, faults, without_work, verdict_kept, another_dtype, another_op,
        another_size_late,
        orders, orders_with_sums, other_settings, right_plan, other_plans, uneven, too_few_rows,
        wrong_dim, killed, killed_in_a_call, late, watched_steps, other_sides, killed_unwatched,
        group_made_unwatched,
    )
}  # fmt: skip
ODDITIES = (
    changed_results, manual_steps, groups_come_and_go, threads, errors_of_its_own,
    compiled_optimizer, raised_unwatched, over_before, over_together,
)  # fmt: skip
SCENARIOS["killed"] = (3, killed)
SCENARIOS["watched_steps"] = (3, watched_steps)
SCENARIOS["another_size_late"] = (3, another_size_late)
SLOW = ("late", "another_size_late", "orders", "orders_with_sums", "other_sides")
"""They wait more than they work: run beside the others."""


def rank_main(name: str, rank: int, folder: Path) -> None:
    size, work = SCENARIOS[name]
    warnings.simplefilter("ignore")
    torch.manual_seed(rank)
    result: dict[str, Any] = {}
    start = time.monotonic()
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=size
        )
        result["value"] = work(rank, size)
        dist.barrier()
    except Exception as error:  # noqa: BLE001  (what it is, is what the tests look at)
        result["error"] = f"{type(error).__name__}: {error}"
        result["trace"] = traceback.format_exc()
    result["seconds"] = time.monotonic() - start
    (folder / f"{name}{rank}.json").write_text(json.dumps(result))


def begin(name: str, folder: Path) -> list[int]:
    """Fork the ranks of a scenario."""
    pids: list[int] = []
    for rank in range(SCENARIOS[name][0]):
        pid = os.fork()
        if not pid:
            try:
                rank_main(name, rank, folder)
            finally:
                os._exit(0)
        pids.append(pid)
    return pids


def end(pids: list[int]) -> None:
    """Wait for ranks; kill those that hang."""
    stop = time.monotonic() + LIMIT
    while pids and time.monotonic() < stop:
        pids = [p for p in pids if os.waitpid(p, os.WNOHANG)[0] == 0]
        time.sleep(0.02)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, names = Path(sys.argv[1]), sys.argv[2:] or list(SCENARIOS)
    SCENARIOS.update({f.__name__: (2, f) for f in ODDITIES})
    asleep = [begin(name, place) for name in names if name in SLOW]
    for name in names:
        if name not in SLOW:
            end(begin(name, place))
    for pids in asleep:
        end(pids)
