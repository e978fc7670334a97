"""Regions of tensor parallelism, a block and its parallel form."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class ToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, g):
        ctx.g = g
        return t.view_as(t)

    @staticmethod
    def backward(ctx, d):
        d = d.clone()
        dist.all_reduce(d, group=ctx.g)
        return d, None


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, g):
        t = t.clone()
        dist.all_reduce(t, group=g)
        return t

    @staticmethod
    def backward(ctx, d):
        return d, None


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class Split(nn.Module):
    """Columns of `up`, rows of `down`."""

    def __init__(self, mesh):
        super().__init__()
        self.g = mesh.get_group("tp")
        self.n = dist.get_world_size(self.g)
        self.r = dist.get_rank(self.g)
        self.up = nn.Linear(8, 16 // self.n)
        self.down = nn.Linear(16 // self.n, 8)

    def part(self, x):
        h = torch.tanh(self.up(ToRanks.apply(x, self.g)))
        return F.linear(h, self.down.weight)

    def total(self, y):
        return Summed.apply(y, self.g)

    def forward(self, x):
        return self.total(self.part(x)) + self.down.bias


class Words(Block):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(12, 8)

    def forward(self, ids):
        return super().forward(self.emb(ids))


class SplitWords(Split):
    """`seam` may add something to the columns of a rank."""

    def __init__(self, mesh):
        super().__init__(mesh)
        self.emb = nn.Embedding(12, 8)

    def forward(self, ids):
        h = torch.tanh(self.up(ToRanks.apply(self.emb(ids), self.g)))
        y = F.linear(self.seam(ids, h), self.down.weight)
        return self.total(y) + self.down.bias

    def seam(self, ids, h):
        return h


def words():
    return {"ids": torch.tensor([11, 1, 3, 5, 0, 7])}


def example_inputs():
    return {"x": torch.randn(4, 8)}
