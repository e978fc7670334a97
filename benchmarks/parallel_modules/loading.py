"""A gated block whose weights are cut by hand when they are loaded, and the block on one device."""

import torch
import torch.distributed as dist
from torch import nn


class Gated(nn.Module):
    """Gate and up are one weight, the rows of the gate first."""

    def __init__(self, hidden=8, inner=12):
        super().__init__()
        self.both = nn.Parameter(torch.randn(2 * inner, hidden))
        self.shift = nn.Parameter(torch.randn(inner))
        self.back = nn.Parameter(torch.randn(hidden, inner))

    def forward(self, x):
        gate, up = (x @ self.both.T).chunk(2, -1)
        return (torch.sigmoid(gate) * (up + self.shift)) @ self.back.T


class Ends(torch.autograd.Function):
    """Sums what comes out, or the gradient of what goes in."""

    @staticmethod
    def forward(ctx, x, group, out):
        ctx.ranks, ctx.out = group, out
        x = x.clone()
        if out:
            dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        if not ctx.out:
            dist.all_reduce(grad, group=ctx.ranks)
        return grad, None, None


class SplitGated(Gated):
    def __init__(self, tp_size, tp_rank, tp_group):
        super().__init__(inner=12 // tp_size)
        self.size, self.number, self.ranks = tp_size, tp_rank, tp_group

    def forward(self, x):
        return Ends.apply(super().forward(Ends.apply(x, self.ranks, False)), self.ranks, True)


def fill(module, whole):
    """Each rank takes its rows of the gate and of up, and its columns of the way back."""
    n, at = module.size, module.number
    gate, up = whole["both"].chunk(2)
    rows = len(gate) // n
    own = slice(at * rows, (at + 1) * rows)
    with torch.no_grad():
        module.both.copy_(torch.cat([gate[own], up[own]]))
        module.shift.copy_(whole["shift"].chunk(n)[at])
        module.back.copy_(whole["back"].chunk(n, 1)[at])
