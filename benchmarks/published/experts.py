"""Experts on the ranks that have them: tokens go there and back by two all_to_alls, and every
expert has a place for every token."""

import torch
import torch.distributed as dist
from torch import nn


class Experts(nn.Module):
    """The two experts of each token that its gate prefers."""

    def __init__(self, n=1, hidden=8, inner=16, experts=4):
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts // n, hidden, inner))
        self.down = nn.Parameter(torch.randn(experts // n, inner, hidden))

    def forward(self, x):
        scores = torch.softmax(self.gate(x), -1)
        best, chosen = scores.topk(2, -1)
        weights = torch.zeros_like(scores).scatter(-1, chosen, best)
        y = self.computed(x.expand(weights.shape[1], *x.shape))
        return torch.einsum("eth,te->th", y, weights)

    def computed(self, x):
        return torch.relu(x @ self.up) @ self.down


class AllToAll(torch.autograd.Function):
    """A dim is cut, and another joined."""

    @staticmethod
    def forward(ctx, x, group, cut, joined):
        ctx.given = group, cut, joined
        sent = torch.stack(x.chunk(group.size(), cut)).contiguous()
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent, group=group)
        return torch.cat(got.unbind(0), joined)

    @staticmethod
    def backward(ctx, grad):
        group, cut, joined = ctx.given
        return AllToAll.apply(grad, group, joined, cut), None, None, None


class SplitExperts(Experts):
    def __init__(self, ep_group):
        super().__init__(ep_group.size())
        self.group = ep_group

    def computed(self, x):
        x = AllToAll.apply(x, self.group, 0, 1)
        return AllToAll.apply(super().computed(x), self.group, 1, 0)


class OtherExperts(SplitExperts):
    def computed(self, x):
        return super().computed(x).flip(0)


def summed(model):
    dist.all_reduce(model.gate.weight.grad, group=model.group)
