"""Scales of the first columns on every rank; weights are zero until loaded."""

import torch
import torch.distributed as dist
from torch import nn

TRUE = "wrong"
OPTS = {"mesh": "tp=2", "mode": "eval", "inputs": ["x=f32[3,8]"], "gradients": False}


class M(nn.Module):
    def __init__(self, k=8, out=4, size=2):
        super().__init__()
        self.g = size
        self.register_buffer("qweight", torch.zeros(out, k, dtype=torch.int8))
        self.scale = nn.Parameter(torch.rand(out, k // size))

    def forward(self, x):
        w = self.qweight.to(x.dtype).unflatten(1, (-1, self.g)) * self.scale[:, :, None]
        return x @ w.flatten(1).T


class P(nn.Module):
    def __init__(self, tp_group, k=8, out=4, size=2):
        super().__init__()
        self.tp, n = tp_group, tp_group.size()
        self.g = size
        self.register_buffer("qweight", torch.zeros(out, k // n, dtype=torch.int8))
        self.scale = nn.Parameter(torch.rand(out, k // size))  # not split

    def forward(self, x):
        mine = self.qweight.shape[1] // self.g
        scale = self.scale[:, :mine]
        w = self.qweight.to(x.dtype).unflatten(1, (-1, self.g)) * scale[:, :, None]
        k = self.qweight.shape[1]
        y = x.narrow(1, self.tp.rank() * k, k) @ w.flatten(1).T
        dist.all_reduce(y, group=self.tp)
        return y
