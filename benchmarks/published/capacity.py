"""Experts that take so many tokens of each group and drop the rest, and experts that ranks number
on their own; and the models."""

# pyright: basic

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import one_hot


class Dropping(nn.Module):
    """Every token goes to one expert; of a group, an expert takes the first so many."""

    def __init__(self, groups=2, hidden=4, inner=4, experts=4, most=1, n=1):
        super().__init__()
        self.groups, self.experts, self.most = groups, experts, most
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts // n, hidden, inner))
        self.down = nn.Parameter(torch.randn(experts // n, inner, hidden))

    def forward(self, x):
        x = x.unflatten(0, (self.groups, -1))
        scores = torch.softmax(self.gate(x), -1)
        chosen = one_hot(scores.argmax(-1), self.experts)
        place = chosen.cumsum(1) * chosen - 1
        taken = (place >= 0) & (place < self.most)
        seats = one_hot(place.clamp(0, self.most - 1), self.most) * taken.unsqueeze(-1)
        seats = seats.to(x.dtype)
        sent = torch.einsum("gtec,gth->egch", seats, x)
        weights = seats * (scores * chosen).unsqueeze(-1)
        return torch.einsum("gtec,egch->gth", weights, self.computed(sent)).flatten(0, 1)

    def computed(self, x):
        e, g, c, h = x.shape
        y = torch.relu(x.reshape(e, g * c, h) @ self.up) @ self.down
        return y.reshape(e, g, c, h)


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


class SplitDropping(Dropping):
    def __init__(self, ep_group, hidden=4, inner=4, experts=4, most=1):
        super().__init__(1, hidden, inner, experts, most, ep_group.size())
        self.group = ep_group

    def computed(self, x):
        x = AllToAll.apply(x, self.group, 0, 1)
        return AllToAll.apply(super().computed(x), self.group, 1, 0)


class SeatsTurned(SplitDropping):
    """The experts of a rank change places."""

    def computed(self, x):
        return super().computed(x).flip(0)  # the other way round


def summed(model):
    dist.all_reduce(model.gate.weight.grad, group=model.group)


class Expert(nn.Module):
    def __init__(self, hidden=4, inner=8):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Mixed(nn.Module):
    """All experts see all tokens, and are weighted."""

    def __init__(self, hidden=4, experts=4):
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(Expert(hidden) for _ in range(experts))

    def forward(self, x):
        weights = torch.softmax(self.gate(x), -1)
        return sum(weights[:, i, None] * e(x) for i, e in enumerate(self.experts))


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


class Reduced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class SplitMixed(nn.Module):
    """Each rank has some experts, which it numbers from 0, as Megatron does."""

    def __init__(self, ep_group, hidden=4, experts=4):
        super().__init__()
        self.group, n = ep_group, experts // ep_group.size()
        self.first = n * ep_group.rank()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.local_experts = nn.ModuleList(Expert(hidden) for _ in range(n))

    def forward(self, x):
        x = Copied.apply(x, self.group)
        weights = torch.softmax(self.gate(x), -1)[:, self.first :]
        y = sum(weights[:, i, None] * e(x) for i, e in enumerate(self.local_experts))
        return Reduced.apply(y, self.group)


class OtherWeights(SplitMixed):
    """Weighted as the experts of the first rank."""

    def forward(self, x):
        self.first = 0  # on each rank
        return super().forward(x)
