"""What the guard uses of PyTorch that PyTorch does not promise, in one place."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportPrivateImportUsage=false

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._compile import _disable_dynamo

CPU: Any = torch._C.DispatchKey.CPU
CUDA: Any = torch._C.DispatchKey.CUDA
META: Any = torch._C.DispatchKey.Meta
BELOW: Any = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
"""Every dispatch key after `BackendSelect`."""


def redispatcher(op: Any) -> Callable[..., Any]:
    """Calls an op from the given dispatch keys on, without Python's lock."""
    return op._handle.redispatch_boxed


def backward_task() -> int:
    """The backward pass that this thread is in, -1 outside of one."""
    return torch._C._current_graph_task_id()


def after_backward(do: Callable[[], None]) -> None:
    """Do this when the backward pass under way has ended."""
    engine: Any = torch.autograd.Variable._execution_engine
    engine.queue_callback(do)


def uncompiled(do: Callable[[], None]) -> Callable[..., None]:
    """A hook that calls this, whatever it is given, and is no part of what a program compiles."""

    def hook(*_: Any) -> None:
        do()

    return _disable_dynamo(hook)


def leave_uncompiled(*packages: str) -> None:
    """Have `torch.compile` leave these packages alone: their functions are called from kernels."""
    rules: Any = importlib.import_module("torch._dynamo.trace_rules")
    for name in packages:
        rules.add(name)


def store(prefix: str) -> Any:
    """The store of the default process group, under a prefix."""
    return part(dist.distributed_c10d._get_default_store(), prefix)


def part(whole: Any, prefix: str) -> Any:
    """A store, under a prefix."""
    return dist.PrefixStore(prefix, whole)


def new_group(**options: Any) -> Any:
    """`torch.distributed.new_group`."""
    return dist.new_group(**options)


def groups() -> list[Any]:
    """The process groups that this process is in."""
    return list(dist.distributed_c10d._world.pg_map)


def counted(pg: Any) -> int:
    """How many calls this rank has given the group's backends, one a kind of device, -1 where they
    do not count them."""
    try:
        backends = [pg._get_backend(device) for device in pg._device_types]
        unlike = {id(backend): backend for backend in backends}.values()
        return sum(int(backend._get_sequence_number_for_group()) for backend in unlike)
    except RuntimeError:
        return -1


def counting_messages(pg: Any) -> frozenset[str]:
    """The kinds of devices for which `counted` counts messages between two ranks, too."""
    return frozenset(d.type for d in pg._device_types if pg._get_backend(d).name() == "gloo")


def coalescing(pg: Any) -> bool:
    """Whether calls are being gathered, to be made together when the last has come."""
    return pg in dist.distributed_c10d._world.pg_coalesce_state


def alive(pg: Any) -> bool:
    """Whether it was not destroyed."""
    return pg in dist.distributed_c10d._world.pg_group_ranks


def counts_otherwise() -> bool:
    """Whether backends count more than calls: with TORCH_DISTRIBUTED_DEBUG=DETAIL every collective
    brings messages of its own."""
    return dist.get_debug_level() == dist.DebugLevel.DETAIL


def on_new_group(then: Callable[[Any], None]) -> Callable[[], None]:
    """Call this with every process group that this process makes, until what is returned is
    called."""
    module: Any = dist.distributed_c10d
    register = module._register_process_group

    def registered(name: str, pg: Any) -> Any:
        then(pg)
        return register(name, pg)

    def undo() -> None:
        if module._register_process_group is registered:
            module._register_process_group = register

    module._register_process_group = registered
    return undo


def from_backend(error: BaseException) -> bool:
    """Whether this may be what a collective ended with."""
    words = ("gloo", "nccl", "c10d", "processgroup")
    return isinstance(error, dist.DistError) or (
        type(error) is RuntimeError and any(word in str(error).lower() for word in words)
    )


def tensor(array: Any) -> torch.Tensor:
    """`torch.from_numpy`."""
    return torch.from_numpy(array)


def split(t: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
    """`Tensor.split`, typed."""
    whole: Any = t
    return list(whole.split(sizes))
