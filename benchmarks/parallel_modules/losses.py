"""Losses and statistics over what is spread over ranks, and the same on one device."""

import torch
import torch.distributed as dist
from torch import nn


class Words(nn.Module):
    """The loss of each word, of logits that a head gives."""

    def __init__(self, vocabulary=8, hidden=8):
        super().__init__()
        self.head = nn.Parameter(torch.randn(vocabulary, hidden))

    def forward(self, x, words):
        return nn.functional.cross_entropy(x @ self.head.T, words, reduction="none")


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, words, group):
        top = logits.max(-1).values
        dist.all_reduce(top, dist.ReduceOp.MAX, group)
        powers = torch.exp(logits - top[:, None])
        below = powers.sum(-1)
        dist.all_reduce(below, group=group)
        own = words - group.rank() * logits.shape[-1]
        here = (own >= 0) & (own < logits.shape[-1])
        own = torch.where(here, own, 0)
        said = torch.where(here, logits.gather(1, own[:, None])[:, 0], 0)
        dist.all_reduce(said, group=group)
        ctx.save_for_backward(powers / below[:, None], own, here)
        return torch.log(below) + top - said

    @staticmethod
    def backward(ctx, grad):
        chance, own, here = ctx.saved_tensors
        hit = torch.zeros_like(chance).scatter(1, own[:, None], here[:, None].to(chance.dtype))
        return (chance - hit) * grad[:, None], None, None


class Summed(torch.autograd.Function):
    """The sum over ranks, of values or of their gradients."""

    @staticmethod
    def forward(ctx, x, group, ahead):
        ctx.group, ctx.ahead = group, ahead
        x = x.clone()
        if ahead:
            dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return Summed.apply(grad, ctx.group, not ctx.ahead), None, None


class SplitWords(Words):
    def __init__(self, tp_size, tp_group):
        super().__init__(8 // tp_size)
        self.tp = tp_group

    def forward(self, x, words):
        x = Summed.apply(x, self.tp, False)
        return CrossEntropy.apply(x @ self.head.T, words, self.tp)


class Standardized(nn.Module):
    """Rows less their mean, in units of their spread, then weighted."""

    def __init__(self, hidden=8):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(hidden))

    def forward(self, x):
        middle = x.mean(0)
        spread = (x - middle).square().mean(0)
        return (x - middle) * torch.rsqrt(spread + 1e-3) * self.scale


class Everywhere(torch.autograd.Function):
    """The sum over ranks; each rank's loss depends on all of it."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return Everywhere.apply(grad, ctx.group), None


class SplitStandardized(Standardized):
    """Each rank has some of the rows."""

    def __init__(self, dp_group):
        super().__init__()
        self.dp = dp_group

    def forward(self, x):
        rows = x.shape[0] * self.dp.size()
        middle = Everywhere.apply(x.sum(0), self.dp) / rows
        spread = Everywhere.apply((x - middle).square().sum(0), self.dp) / rows
        return (x - middle) * torch.rsqrt(spread + 1e-3) * self.scale


def added(model):
    dist.all_reduce(model.scale.grad, group=model.dp)
