"""The guard's own collectives, straight on a process group: each waits until it is done."""

from __future__ import annotations

from typing import Any

import torch
from torch._C._distributed_c10d import AllreduceOptions, BroadcastOptions


def all_gather(target: torch.Tensor, source: torch.Tensor, group: Any) -> None:
    """All `source`s one after another in `target`, flat."""
    group._allgather_base(target, source).wait()


def all_to_all(target: torch.Tensor, source: torch.Tensor, group: Any) -> None:
    """Equal parts of `source`, one to each rank."""
    group.alltoall_base(target, source, [], []).wait()


def all_reduce(target: torch.Tensor, group: Any) -> None:
    """The sum, in place."""
    group.allreduce([target], AllreduceOptions()).wait()


def reduce_scatter(target: torch.Tensor, source: torch.Tensor, group: Any) -> None:
    """This rank's part of the sum."""
    group._reduce_scatter_base(target, source).wait()


def broadcast(target: torch.Tensor, root: int, group: Any) -> None:
    """The tensor of rank `root` of the group, in place."""
    options = BroadcastOptions()
    options.rootRank, options.rootTensor = root, 0
    group.broadcast([target], options).wait()
