"""What ranks do in the tests of steps that are not watched; run by `programs.py`."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from benchmarks.fault_injection import Fault, Injector
from shardproof.synthesis.guard import FaultError, Guard, kernels


def _optimizer() -> Any:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.zeros(2)
    return torch.optim.SGD([weight], lr=0.0)


def _collectives(r: int, n: int) -> None:
    """Eight calls of one group, and messages: as many for all, and more for rank 0."""
    t, world = torch.ones(18) * (r + 1), dist.group.WORLD
    assert world is not None
    for _ in range(2):
        dist.all_reduce(t.clone())
        dist.all_reduce(t.clone(), async_op=True).wait()
        dist.all_gather_into_tensor(torch.empty(18 * n), t)
        total: Any = funcol.reduce_scatter_tensor(t, "sum", 0, world) + 1
        del total
    ops = [
        dist.P2POp(dist.isend, t, (r + 1) % n),
        dist.P2POp(dist.irecv, torch.empty(18), (r - 1) % n),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    dist.monitored_barrier()
    if r == 0:
        dist.recv(torch.empty(3))
    elif r == 1:
        dist.send(torch.ones(3), 0)


def watched_steps(r: int, n: int) -> Any:
    """Steps without a fault, which kernels are in place in them, and a fault in one that is drawn
    and in one that is not."""
    optimizer, wide = _optimizer(), list[bool]()
    dist.all_reduce(torch.ones(1))  # before the guard: the backend has counted it
    with Guard(every=8, cycle=4, agree=2, seed=1) as guard:
        for _ in range(41):
            _collectives(r, n)
            wide.append(kernels.shown(True))
            optimizer.step()
    clean = guard.summary()
    injector, rows = Injector(r), list[Any]()
    with Guard(every=4, cycle=4, seed=2) as guard:
        guard.step()  # the first looks at one call of 4, those drawn later at all of theirs
        for _ in range(30):
            drawn = guard._cycle.takes(guard.steps)
            injector.arm(Fault("bit_flip", 1, "all_gather", 0, 5))
            said = ""
            _collectives(r, n)
            try:
                optimizer.step()
            except FaultError as error:
                said = str(error)
            rows.append([drawn, said, guard.alarms[-1].step == guard.steps - 1 if said else None])
    injector.arm(None)
    return {"clean": clean, "wide": wide, "rows": rows}


def other_sides(r: int, n: int) -> Any:
    """A call that one rank makes before its optimizer, the other after it: right, and strange."""
    optimizer = _optimizer()
    kept: list[Any] = []
    with Guard(every=4, cycle=4, seed=1) as guard:
        for i in range(12):
            if r:
                optimizer.step()
            kept.append(dist.all_reduce(torch.full((64,), float(i)), async_op=True))
            if not r:
                optimizer.step()
        for work in kept:
            work.wait()
    return guard.summary()


def killed_unwatched(r: int, n: int) -> Any:
    """In a step that is not watched, in a call that waits in C++."""
    optimizer, world = _optimizer(), dist.group.WORLD
    assert world is not None
    with Guard(every=64, cycle=64, timeout=10, seed=3) as guard:
        for _ in range(3):
            dist.all_reduce(torch.ones(4))
            optimizer.step()
        assert not guard._observer.watching
        if r == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        total: Any = funcol.all_reduce(torch.ones(4), "sum", world) + 1
        del total


def group_made_unwatched(r: int, n: int) -> Any:
    """Its first calls are compared all the same."""
    optimizer = _optimizer()
    with Guard(every=64, cycle=64, timeout=10, seed=3) as guard:
        for _ in range(3):
            dist.all_reduce(torch.ones(4))
            optimizer.step()
        assert not guard._observer.watching
        late = dist.new_group()
        dist.all_reduce(torch.ones(4), group=late)
        dist.all_reduce(torch.ones(4, dtype=torch.float64 if r else torch.float32), group=late)
