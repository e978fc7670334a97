"""Spellings of published layers: collectives in flight on parts of one buffer, entries picked by
row and column, a weight split both ways; and the models."""

# pyright: basic, reportOptionalMemberAccess=false

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import gelu, linear


class MLP(nn.Module):
    def __init__(self, hidden=8, inner=16):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x):
        return self.down(gelu(self.up(x)))


class Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Summed(torch.autograd.Function):
    """Two sums at once, each of a part of the buffer."""

    @staticmethod
    def forward(ctx, y, group, both):
        y = y.clone()
        first = dist.all_reduce(y[:2], group=group, async_op=True)
        if both:
            dist.all_reduce(y[2:], group=group, async_op=True).wait()
        first.wait()
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad, None, None


class InFlight(nn.Module):
    both = True

    def __init__(self, tp_group, hidden=8, inner=16):
        super().__init__()
        self.group, n = tp_group, tp_group.size()
        self.up, self.down = nn.Linear(hidden, inner // n), nn.Linear(inner // n, hidden)

    def forward(self, x):
        h = gelu(self.up(Copied.apply(x, self.group)))
        return Summed.apply(linear(h, self.down.weight), self.group, self.both) + self.down.bias


class OneInFlight(InFlight):
    both = False  # half of the rows


class Reduced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Scored(nn.Module):
    """The score of a label."""

    def __init__(self, hidden=8, classes=16):
        super().__init__()
        self.head = nn.Linear(hidden, classes, bias=False)

    def forward(self, x, label):
        return self.head(x)[torch.arange(len(label)), label]


class SplitScored(Scored):
    """Each rank has some classes, and picks what is its own by row and column."""

    below = 0

    def __init__(self, tp_group, hidden=8, classes=16):
        super().__init__(hidden, classes // tp_group.size())
        self.group, self.n = tp_group, classes // tp_group.size()

    def forward(self, x, label):
        label = label - self.group.rank() * self.n
        other = (label < self.below) | (label >= self.n)
        y = self.head(Copied.apply(x, self.group))
        picked = y[torch.arange(len(label)), label.masked_fill(other, 0)]
        return Reduced.apply(picked.masked_fill(other, 0.0), self.group)


class FirstLeftOut(SplitScored):
    below = 1  # the first class of each rank is left out


class RowsAndColumns(nn.Module):
    """A weight split both ways: inputs gathered over columns, sums over rows."""

    def __init__(self, row_group, col_group, hidden=8, inner=16):
        super().__init__()
        self.row, self.col = row_group, col_group
        n, m = row_group.size(), col_group.size()
        self.up = nn.Linear(hidden // m, inner // n)
        self.down = nn.Linear(inner // n, hidden // m)

    def forward(self, x):
        x = Copied.apply(x, self.row)
        h = Reduced.apply(linear(x, self.up.weight), self.col) + self.up.bias
        y = linear(gelu(Copied.apply(h, self.col)), self.down.weight)
        return Reduced.apply(y, self.summed_over()) + self.down.bias

    def summed_over(self):
        return self.row


class OtherWay(RowsAndColumns):
    def summed_over(self):
        return self.col  # sums of other parts
