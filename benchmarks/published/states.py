"""Layers that change what they keep: statistics of a batch norm, a cache of keys and values; and
the models."""

# pyright: basic

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import relu


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Normed(nn.Module):
    """A batch norm between two linear layers."""

    momentum = 0.1

    def __init__(self, hidden=4, n=1):
        super().__init__()
        self.up = nn.Linear(hidden, hidden // n)
        self.norm = nn.BatchNorm1d(hidden // n, momentum=self.momentum)
        self.down = nn.Linear(hidden // n, hidden, bias=False)

    def forward(self, x):
        return self.summed(self.down(relu(self.norm(self.up(x)))))

    def summed(self, y):
        return y


class SplitNormed(Normed):
    """Channels are split: each rank has the statistics of its own."""

    def __init__(self, tp_group, hidden=4):
        super().__init__(hidden, tp_group.size())
        self.group = tp_group

    def summed(self, y):
        return Summed.apply(y, self.group)


class Slower(SplitNormed):
    momentum = 0.01  # of another model


class Cached(nn.Module):
    """Attention whose keys and values are kept for the next call, as Meta's llama has it."""

    def __init__(self, hidden=8, heads=4, batch=2, most=6, n=1):
        super().__init__()
        self.d = hidden // heads
        self.q, self.k, self.v = (nn.Linear(hidden, hidden // n, bias=False) for _ in range(3))
        self.out = nn.Linear(hidden // n, hidden, bias=False)
        self.keys, self.values = (torch.zeros(batch, most, heads // n, self.d) for _ in range(2))

    def forward(self, x):
        return self.out(self.attended(x))

    def attended(self, x, start=2):
        b, s, _ = x.shape
        q, k, v = (w(x).view(b, s, -1, self.d) for w in (self.q, self.k, self.v))
        self.keys[:b, start : start + s] = k
        self.values[:b, start : start + s] = v
        q, k, v = (t[:b, : start + s].transpose(1, 2) for t in (q, self.keys, self.values))
        s = q @ k.mT * self.d**-0.5
        return (torch.softmax(s, -1) @ v).transpose(1, 2).flatten(2)


class SplitCached(Cached):
    def __init__(self, tp_group, hidden=8, heads=4, batch=2, most=6):
        super().__init__(hidden, heads, batch, most, tp_group.size())
        self.group = tp_group

    def forward(self, x):
        return Summed.apply(self.out(self.attended(x)), self.group)


class AnotherPlace(SplitCached):
    def forward(self, x):
        return Summed.apply(self.out(self.attended(x, start=1)), self.group)  # one row before
