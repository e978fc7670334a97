"""The guard's own collectives, straight on a process group. `start_...` returns the Work."""

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import AllreduceOptions, BroadcastOptions


def start_all_gather(target: torch.Tensor, source: torch.Tensor, group: Any) -> Any:
    """All `source`s one after another in `target`, flat."""
    return group._allgather_base(target, source)


def start_all_to_all(target: torch.Tensor, source: torch.Tensor, group: Any) -> Any:
    """Equal parts of `source`, one to each rank."""
    return group.alltoall_base(target, source, [], [])


def start_all_reduce(target: torch.Tensor, group: Any) -> Any:
    """The sum, in place."""
    return group.allreduce([target], AllreduceOptions())


def start_reduce_scatter(target: torch.Tensor, source: torch.Tensor, group: Any) -> Any:
    """This rank's part of the sum."""
    return group._reduce_scatter_base(target, source)


def start_broadcast(target: torch.Tensor, root: int, group: Any) -> Any:
    """The tensor of rank `root` of the group, in place."""
    options = BroadcastOptions()
    options.rootRank, options.rootTensor = root, 0
    return group.broadcast([target], options)


def finish(work: Any, target: torch.Tensor, seconds: float | None = None) -> None:
    """Wait for it: for so many seconds at most on the host; on a device the stream waits.

    Raises:
        RuntimeError: a rank is gone, or did not come.
    """
    if seconds is None or target.device.type != "cpu":
        work.wait()
    else:
        work.wait(timedelta(seconds=seconds))
