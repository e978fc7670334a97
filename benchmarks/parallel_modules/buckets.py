"""Replicas that average their gradients, and the model on one device."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 6)
        self.second = nn.Linear(6, 3)

    def forward(self, x, target):
        made = self.second(torch.tanh(self.first(x)))
        return ((made - target) ** 2).mean()


class Replica(Net):
    def __init__(self, dp_group):
        super().__init__()
        self.dp_group = dp_group


def flushed(model):
    """After the backward: all gradients in one piece."""
    held = [p for p in model.parameters() if p.grad is not None]
    flat = torch.cat([p.grad.reshape(-1) for p in held])
    dist.all_reduce(flat, group=model.dp_group)
    flat = flat / model.dp_group.size()
    start = 0
    for p in held:
        end = start + p.numel()
        p.grad.copy_(flat[start:end].view_as(p))
        start = end


def wrapped(mesh):
    """Copies in each dp group; along tp all do the same."""
    return DistributedDataParallel(Net(), process_group=mesh.get_group("dp"))
