"""Towers of which ranks have unlike numbers, exchanged by an all_to_all of unequal pieces; and the
model."""

# pyright: basic

import torch
import torch.distributed as dist
from torch import nn

TOWERS = 3


def owned(rank, size):
    """The first rank has one tower, the last one all that are left."""
    return range(rank, rank + 1 if rank < size - 1 else TOWERS)


class Towers(nn.Module):
    """A linear layer for each feature, side by side, and one over all."""

    def __init__(self, hidden=2, out=2):
        super().__init__()
        self.towers = nn.ModuleDict({str(i): nn.Linear(hidden, out) for i in range(TOWERS)})
        self.over = nn.Linear(TOWERS * out, 2)

    def forward(self, x):
        parts = [t(x[:, int(i)]) for i, t in self.towers.items()]
        return self.over(torch.relu(torch.cat(parts, 1)))


class Exchange(torch.autograd.Function):
    """Columns of all rows for all columns of some rows."""

    @staticmethod
    def forward(ctx, x, group, widths):
        ctx.given = group, widths
        n, rows = group.size(), len(x) // group.size()
        got = x.new_empty(rows * sum(widths))
        sent = [rows * widths[group.rank()]] * n
        dist.all_to_all_single(got, x.reshape(-1), [rows * w for w in widths], sent, group=group)
        parts = got.split([rows * w for w in widths])
        return torch.cat([p.view(rows, -1) for p in parts], 1)

    @staticmethod
    def backward(ctx, grad):
        group, widths = ctx.given
        n, mine = group.size(), widths[group.rank()]
        sent = torch.cat([g.reshape(-1) for g in grad.split(widths, 1)])
        got = grad.new_empty(n * len(grad) * mine)
        lengths = [len(grad) * w for w in widths]
        dist.all_to_all_single(got, sent, [len(grad) * mine] * n, lengths, group=group)
        return got.view(-1, mine), None, None


class SplitTowers(nn.Module):
    """Towers on ranks, rows on ranks."""

    def __init__(self, tp_group, hidden=2, out=2):
        super().__init__()
        self.group, n = tp_group, tp_group.size()
        own = owned(tp_group.rank(), n)
        self.widths = [len(owned(r, n)) * out for r in range(n)]
        self.towers = nn.ModuleDict({str(i): nn.Linear(hidden, out) for i in own})
        self.over = nn.Linear(TOWERS * out, 2)

    def forward(self, x):
        y = torch.cat([t(x[:, int(i)]) for i, t in self.towers.items()], 1)
        return self.over(torch.relu(Exchange.apply(self.turned(y), self.group, self.widths)))

    def turned(self, y):
        return y


class RowsTurned(SplitTowers):
    def turned(self, y):
        return y.flip(0)  # the other way round


def summed(model):
    for p in model.over.parameters():
        dist.all_reduce(p.grad, group=model.group)
