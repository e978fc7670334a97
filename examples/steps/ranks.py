"""The same steps on ranks."""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from one import MLP, ema_step, groups, plain_step  # noqa: F401
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Whole(ParallelStyle):
    def _apply(self, module, mesh):
        def given(module, inputs, mesh):
            return DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False)

        return distribute_module(module, mesh, None, given, lambda m, out, mesh: out.to_local())


def split(model, mesh):
    plan = {"norm": Whole(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


def trained(model):
    optimizer = torch.optim.AdamW(groups(model), lr=1e-3)
    return model, optimizer, CosineAnnealingLR(optimizer, 100)


def sgd_sharded(mesh):
    model = fully_shard(MLP(), mesh=mesh)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def sgd_split(mesh):
    model = split(MLP(), mesh)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def sharded(mesh):
    return trained(fully_shard(MLP(), mesh=mesh))


def replicated(mesh):
    return trained(DistributedDataParallel(MLP()))


def both(mesh):
    return trained(fully_shard(split(MLP(), mesh["tp"]), mesh=mesh["dp"]))


def averaged(mesh):
    model = DistributedDataParallel(MLP())
    ema = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    return model, torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True), ema


def by_hand(mesh):
    return trained(MLP())


def train_step(model, optimizer, schedule, x, y):
    parts = list(zip(x.chunk(2), y.chunk(2), strict=True))
    for number, (part, target) in enumerate(parts):
        last = number == len(parts) - 1
        if isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(last)
        waits = isinstance(model, DistributedDataParallel) and not last
        with model.no_sync() if waits else contextlib.nullcontext():
            loss = F.mse_loss(model(part), target)
            (loss / 2).backward()
    if not isinstance(model, (FSDPModule, DistributedDataParallel)):
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
