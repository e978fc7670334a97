"""What right programs do now and then, and how programs end; run by `programs.py`."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

from benchmarks.fault_injection import Fault, Injector
from shardproof.synthesis.guard import FaultError, Guard, GuardError, kernels, private


def _optimizer() -> Any:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.zeros(2)
    return torch.optim.SGD([weight], lr=0.0)


def changed_results(r: int, n: int) -> Any:
    """Results that the program changes before it waits, as it knows that they are there."""
    with Guard() as guard:
        for _ in range(5):
            t = torch.ones(64) * (r + 1)
            work = dist.all_reduce(t, async_op=True)
            while not work.is_completed():
                time.sleep(0.001)
            t.mul_(3)
            work.wait()
        guard.step()
        polled = guard.summary()
        for _ in range(5):
            t = torch.ones(64) * (r + 1)
            work = dist.all_reduce(t, async_op=True)
            work.get_future().then(lambda f: f.value()[0].div_(n)).wait()
            work.wait()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
        state = power.PowerSGDState(None, 1, start_powerSGD_iter=3)
        model.register_comm_hook(state, power.powerSGD_hook)
        for _ in range(8):
            model(torch.randn(4, 16)).sum().backward()
            guard.step()
        left = len(kernels._waited)
    return {"polled": polled, "all": guard.summary(), "left": left}


def manual_steps(r: int, n: int) -> Any:
    """Optimizers that step differently often; what is sampled is let go of."""
    optimizer = _optimizer()
    held: list[Any] = []
    with Guard(every=4, cycle=4, optimizers=False, seed=3) as guard:
        for i in range(60):
            t = torch.full((64,), float(i))
            dist.all_reduce(t)
            held.append(weakref.ref(t))
            del t
            for _ in range(1 + r):
                optimizer.step()
            if i % 3 == 2:
                guard.step()
        gone = sum(x() is None for x in held)
    return {**guard.summary(), "gone": gone}


def groups_come_and_go(r: int, n: int) -> Any:
    optimizer = _optimizer()
    mixed = dist.new_group(backend="cpu:gloo,cuda:gloo")
    with Guard(every=4, cycle=4, seed=1) as guard:
        for i in range(30):
            group = dist.new_group()
            dist.all_reduce(torch.full((4,), float(i)), group=group)
            dist.all_reduce(torch.ones(2), group=mixed)
            if r == 0:
                dist.send(torch.ones(2), 1, group=mixed)
            elif r == 1:
                dist.recv(torch.ones(2), 0, group=mixed)
            dist.destroy_process_group(group)
            optimizer.step()
        known = len(guard._observer.groups)
    return {**guard.summary(), "known": known, "counted": private.counted(mixed)}


def threads(r: int, n: int) -> Any:
    """A thread of the program's own that calls beside its steps, as checkpoints do."""
    optimizer, pg = _optimizer(), dist.new_group()
    wrong: list[str] = []
    wide: list[bool] = []

    def beside() -> None:
        try:
            for i in range(40):
                rows: list[Any] = [None] * n
                dist.all_gather_object(rows, {"r": r, "x": "y" * 7 * i}, group=pg)
                time.sleep(0.002 * (r + 1))
        except Exception as error:  # noqa: BLE001  (said by the test)
            wrong.append(str(error))

    with Guard(every=4, cycle=4, seed=3) as guard:
        other = threading.Thread(target=beside)
        other.start()
        while True:
            more = torch.tensor(float(other.is_alive()))
            dist.all_reduce(more)  # both ranks end the loop in the same step
            if not more:
                break
            optimizer.step()
        other.join()
        for _ in range(8):
            dist.barrier()
            optimizer.step()
            wide.append(kernels.shown(True))
    return {**guard.summary(), "wrong": wrong, "wide": sum(wide)}


def errors_of_its_own(r: int, n: int) -> Any:
    """What the backend does not know is its own error, and the guard goes on; then a guard that
    failed, another after it, and one in an `except` block."""
    said: list[str] = []
    with Guard(timeout=8) as guard:
        try:
            dist.all_reduce(torch.ones(4).to(torch.uint16))
        except RuntimeError as error:
            said.append(type(error).__name__)
        dist.all_reduce(torch.ones(4))
        work = dist.all_reduce(torch.ones(4), async_op=True)
        with FakeTensorMode():
            torch.ops._c10d_functional.wait_tensor(torch.ones(4))
        work.wait()
    said.append(str(guard.failed))
    injector = Injector(r)
    try:
        with Guard(timeout=8):
            dist.all_reduce(torch.ones(4 + r))
    except GuardError:
        try:
            with Guard():
                injector.arm(Fault("bit_flip", 1, "all_gather", 0, 5))
                dist.all_gather_into_tensor(torch.empty(4 * n), torch.ones(4))
        except FaultError as error:
            said.append(str(error))
    injector.remove()
    meeting = dist.distributed_c10d._get_default_store()
    try:
        with Guard(timeout=1) as guard:
            if r:
                meeting.wait(["late"])
            guard.step()
    except GuardError as error:
        said.append(str(error))
        meeting.set("late", "")
    return said


def compiled_optimizer(r: int, n: int) -> Any:
    optimizer = _optimizer()
    step = torch.compile(optimizer.step, backend="eager")
    with Guard() as guard:
        for _ in range(3):
            dist.all_reduce(torch.ones(4))
            step()
    return guard.summary()


def _unwatched(optimizer: Any, guard: Guard) -> None:
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
        optimizer.step()
    assert not guard._observer.watching


def raised_unwatched(r: int, n: int) -> Any:
    """An error of the program's own, in a step that is not watched."""
    optimizer = _optimizer()
    with Guard(every=64, cycle=64, timeout=20, seed=3) as guard:
        _unwatched(optimizer, guard)
        if r == 1:
            raise ValueError("batch 17 is bad")
        dist.all_reduce(torch.ones(4))


def over_before(r: int, n: int) -> Any:
    """A program that is over on one rank, while the other waits for it."""
    guard = Guard(every=64, cycle=64, timeout=20, seed=3).start()
    _unwatched(_optimizer(), guard)
    if r == 1:
        guard._at_exit(os.getpid())
        os._exit(0)
    dist.all_reduce(torch.ones(4))


def over_together(r: int, n: int) -> Any:
    """Programs that end with no word to the guard: what is left is judged."""
    injector = Injector(r)
    guard = Guard(timeout=20).start()
    injector.arm(Fault("bit_flip", 1, "all_gather", 0, 5))
    dist.all_gather_into_tensor(torch.empty(4 * n), torch.ones(4))
    guard._at_exit(-1)  # a fork of the rank says nothing
    assert not guard.ended
    guard._at_exit(os.getpid())
    return len(guard.alarms)
