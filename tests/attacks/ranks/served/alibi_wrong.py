"""Slopes of the first heads on every rank."""

import torch
import torch.distributed as dist
from torch import nn

TRUE = "wrong"
OPTS = {"mesh": "tp=2", "mode": "eval", "inputs": ["x=f32[3,8]"], "gradients": False}


def slopes(n):
    return torch.tensor([2.0 ** (-8.0 * (i + 1) / n) for i in range(n)])


class M(nn.Module):
    def __init__(self, hidden=8, heads=4):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(hidden, hidden, bias=False)
        self.k = nn.Linear(hidden, hidden, bias=False)
        self.v = nn.Linear(hidden, hidden, bias=False)
        self.o = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        qkv = self.q, self.k, self.v
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(0, 1) for f in qkv)
        pos = torch.arange(x.shape[0])
        bias = slopes(self.heads)[:, None, None] * (pos[None, :] - pos[:, None])
        s = q @ k.mT + bias
        s = s.masked_fill(pos[None, :] > pos[:, None], float("-inf"))
        return self.o((s.softmax(-1) @ v).transpose(0, 1).flatten(1))


class P(nn.Module):
    def __init__(self, tp_group, hidden=8, heads=4):
        super().__init__()
        self.group, n = tp_group, tp_group.size()
        self.total, self.heads = heads, heads // n
        self.q = nn.Linear(hidden, hidden // n, bias=False)
        self.k = nn.Linear(hidden, hidden // n, bias=False)
        self.v = nn.Linear(hidden, hidden // n, bias=False)
        self.o = nn.Linear(hidden // n, hidden, bias=False)

    def forward(self, x):
        qkv = self.q, self.k, self.v
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(0, 1) for f in qkv)
        pos = torch.arange(x.shape[0])
        mine = slopes(self.heads)
        bias = mine[:, None, None] * (pos[None, :] - pos[:, None])
        s = q @ k.mT + bias
        s = s.masked_fill(pos[None, :] > pos[:, None], float("-inf"))
        y = self.o((s.softmax(-1) @ v).transpose(0, 1).flatten(1))
        dist.all_reduce(y, group=self.group)
        return y
