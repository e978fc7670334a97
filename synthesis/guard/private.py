"""What the guard uses of PyTorch that PyTorch does not promise, in one place."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

CPU: Any = torch._C.DispatchKey.CPU
CUDA: Any = torch._C.DispatchKey.CUDA
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
    """How many calls this rank has given the group's backend, -1 where it does not count them."""
    try:
        return int(pg._get_sequence_number_for_group())
    except RuntimeError:
        return -1


def counts_messages(pg: Any) -> bool:
    """Whether `counted` counts messages between two ranks, too."""
    return dist.get_backend(pg) == "gloo"


def counts_otherwise() -> bool:
    """Whether backends count more than calls: with TORCH_DISTRIBUTED_DEBUG=DETAIL every collective
    brings messages of its own."""
    return dist.get_debug_level() == dist.DebugLevel.DETAIL


def on_new_group(then: Callable[[], None]) -> Callable[[], None]:
    """Call this for every process group that this process makes, until what is returned is."""
    module: Any = dist.distributed_c10d
    register = module._register_process_group

    def registered(*args: Any) -> Any:
        then()
        return register(*args)

    def undo() -> None:
        if module._register_process_group is registered:
            module._register_process_group = register

    module._register_process_group = registered
    return undo


def from_backend(error: BaseException) -> bool:
    """Whether this may be what a collective ended with."""
    words = ("gloo", "nccl", "c10d", "processgroup")
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
    )


def tensor(array: Any) -> torch.Tensor:
    """`torch.from_numpy`."""
    return torch.from_numpy(array)


def split(t: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
    """`Tensor.split`, typed."""
    whole: Any = t
    return list(whole.split(sizes))
