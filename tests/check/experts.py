"""Experts on their own ranks, as people write them, and the models; a ring that gathers."""

import torch
import torch.distributed as dist
from regions import Copy, Reduce
from torch import nn


class Router(nn.Module):
    """Every token goes to two experts of `count`."""

    def __init__(self, hidden=4, count=4):
        super().__init__()
        self.gate = nn.Linear(hidden, count, bias=False)

    def weights(self, x):
        p = self.gate(x).softmax(-1)
        best, at = p.topk(2, dim=-1)
        w = torch.zeros_like(p).scatter(-1, at, best)
        return w / w.sum(-1, keepdim=True)


class Stacked(Router):
    def __init__(self, hidden=4, inner=6, count=4, own=4):
        super().__init__(hidden, count)
        self.up = nn.Parameter(torch.randn(own, hidden, inner))
        self.down = nn.Parameter(torch.randn(own, inner, hidden))

    def mixed(self, x, w):
        h = torch.einsum("nd,edf->enf", x, self.up).relu()
        return torch.einsum("enf,efd,ne->nd", h, self.down, w)

    def forward(self, x):
        return self.mixed(x, self.weights(x))


class SplitStacked(Stacked):
    """Each rank has some experts, and their columns of what the router says."""

    def __init__(self, tp_group, tp_size, tp_rank):
        super().__init__(own=4 // tp_size)
        self.group, self.own = tp_group, 4 // tp_size
        self.first = tp_rank * self.own

    def forward(self, x):
        x = Copy.apply(x, self.group)
        w = self.weights(x)[:, self.first : self.first + self.own]
        return Reduce.apply(self.mixed(x, w), self.group)


class OthersColumns(SplitStacked):
    """Wrong: the columns of the experts of the other ranks."""

    def __init__(self, tp_group, tp_size, tp_rank):
        super().__init__(tp_group, tp_size, tp_rank)
        self.first = (tp_size - 1 - tp_rank) * self.own


def expert():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))


class Listed(Router):
    """Every expert for itself."""

    def __init__(self, experts=range(4)):
        super().__init__()
        self.experts = nn.ModuleDict({str(i): expert() for i in experts})

    def mixed(self, x):
        w, y = self.weights(x), torch.zeros_like(x)
        for i, one in self.experts.items():
            y = y + w[:, int(i) : int(i) + 1] * one(x)
        return y

    def forward(self, x):
        return self.mixed(x)


class OwnListed(Listed):
    """Each rank has experts of its own alone."""

    def __init__(self, tp_group, tp_size, tp_rank):
        count = 4 // tp_size
        super().__init__(range(tp_rank * count, (tp_rank + 1) * count))
        self.group = tp_group

    def forward(self, x):
        return Reduce.apply(self.mixed(Copy.apply(x, self.group)), self.group)


def reduce_gate(module):
    dist.all_reduce(module.gate.weight.grad, group=module.group)


class Wide(nn.Module):
    def __init__(self, size=1):
        super().__init__()
        self.up = nn.Linear(4, 8 // size)

    def forward(self, x):
        return self.up(x)


class ByZeros(Wide):
    """The whole is written into zeros, by each rank at its own place, and summed."""

    def __init__(self, tp_group, tp_size, tp_rank):
        super().__init__(tp_size)
        self.group, self.size, self.rank = tp_group, tp_size, tp_rank

    def parts(self, y):
        return [y if r == self.rank else torch.zeros_like(y) for r in range(self.size)]

    def forward(self, x):
        y = self.up(Copy.apply(x, self.group))
        return Reduce.apply(torch.cat(self.parts(y), -1), self.group)


class AtTheNext(ByZeros):
    """Wrong: each rank writes at the place of the next."""

    def parts(self, y):
        parts = super().parts(y)
        return [parts[-1], *parts[:-1]]


def around(x, group, size, rank):
    """All pieces, in rank order, by a ring of messages."""
    parts, piece = {rank: x}, x.contiguous()
    for step in range(1, size):
        got = torch.empty_like(piece)
        calls = [
            dist.P2POp(dist.isend, piece, (rank + 1) % size, group),
            dist.P2POp(dist.irecv, got, (rank - 1) % size, group),
        ]
        for work in dist.batch_isend_irecv(calls):
            work.wait()
        piece = parts[(rank - step) % size] = got
    return torch.cat([parts[r] for r in range(size)])


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, size, rank):
        ctx.of = (group, size, rank)
        return around(x, group, size, rank)

    @staticmethod
    def backward(ctx, grad):
        group, size, _ = ctx.of
        out = torch.empty_like(grad[: len(grad) // size])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=group)
        return out, None, None, None


class RingWide(Wide):
    """Rows are gathered by a ring; each rank has some columns."""

    def __init__(self, tp_group, tp_size, tp_rank):
        super().__init__(tp_size)
        self.of = (tp_group, tp_size, tp_rank)

    def forward(self, x):
        return self.up(Gather.apply(x, *self.of))


def example_inputs():
    return {"x": torch.randn(8, 4)}
