"""Attention whose heads, or whose rows, are on several ranks, and the same on one."""

import torch
import torch.distributed as dist
from torch import nn


class Attention(nn.Module):
    """Causal; the projections are one parameter each, by head."""

    def __init__(self, heads=4, head=2, hidden=8):
        super().__init__()
        self.inward = nn.Parameter(torch.randn(3, heads, hidden, head))
        self.outward = nn.Parameter(torch.randn(heads, head, hidden))

    def weights(self, q, k, first=0):
        scores = torch.einsum("hqd,hkd->hqk", q, k) / q.shape[-1] ** 0.5
        rows = torch.arange(q.shape[1])[:, None] + first
        return torch.softmax(scores.masked_fill(rows < torch.arange(k.shape[1]), -1e9), -1)

    def forward(self, x):
        q, k, v = torch.einsum("td,shde->shte", x, self.inward)
        found = self.weights(q, k) @ v
        return torch.einsum("hte,hed->td", found, self.outward)


def total(x, group):
    x = x.contiguous().clone()
    dist.all_reduce(x, group=group)
    return x


class Joined(torch.autograd.Function):
    """The sum over ranks; each has the whole gradient."""

    @staticmethod
    def forward(ctx, part, group):
        return total(part, group)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class SplitHeads(Attention):
    """The gradient of the input is summed by a hook of the tensor."""

    def __init__(self, tp_size, tp_group):
        super().__init__(heads=4 // tp_size)
        self.ranks = tp_group

    def forward(self, x):
        shared = x.view_as(x)
        if shared.requires_grad:
            shared.register_hook(lambda grad: total(grad, self.ranks))
        return Joined.apply(super().forward(shared), self.ranks)


class EveryRow(torch.autograd.Function):
    """Rows of all ranks, along dim 1."""

    @staticmethod
    def forward(ctx, part, group):
        ctx.ranks = group
        pieces = [torch.empty_like(part) for _ in range(group.size())]
        dist.all_gather(pieces, part.contiguous(), group=group)
        return torch.cat(pieces, 1)

    @staticmethod
    def backward(ctx, grad):
        rows = grad.shape[1] // ctx.ranks.size()
        summed = total(grad, ctx.ranks)
        return summed.narrow(1, ctx.ranks.rank() * rows, rows), None


class SplitRows(Attention):
    """Each rank has queries of its own, and asks for all keys and values."""

    def __init__(self, cp_rank, cp_group):
        super().__init__()
        self.number, self.ranks = cp_rank, cp_group

    def forward(self, x):
        q, k, v = torch.einsum("td,shde->shte", x, self.inward)
        k, v = EveryRow.apply(k, self.ranks), EveryRow.apply(v, self.ranks)
        found = self.weights(q, k, self.number * x.shape[0]) @ v
        return torch.einsum("hte,hed->td", found, self.outward)


def collected(model):
    """After the backward: parameters are the same on all ranks, rows are not."""
    for name in ("inward", "outward"):
        weight = getattr(model, name)
        weight.grad = total(weight.grad, model.ranks)
