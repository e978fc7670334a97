"""Spellings of published parallel code: exchanges of heads and tokens, rotary embeddings by complex
numbers, collectives behind custom ops; and the models."""

import torch
import torch.distributed as dist
from torch import nn


class Attention(nn.Module):
    def __init__(self, h=8, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(h, 3 * h, bias=False)
        self.out = nn.Linear(h, h, bias=False)

    def forward(self, x):
        b, s, h = x.shape
        parts = self.qkv(x).chunk(3, -1)
        y = self.attend(*(t.view(b, s, self.heads, -1) for t in parts))
        return self.out(y.reshape(b, s, h))

    def attend(self, q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return (torch.softmax(q @ k.transpose(2, 3), -1) @ v).transpose(1, 2)


def heads_for_rows(x, group):
    """[b, s/n, heads, d] to [b, s, heads/n, d]."""
    n = group.size()
    b, rows, heads, d = x.shape
    sent = x.reshape(b, rows, n, heads // n, d).transpose(0, 2).contiguous()
    got = torch.empty_like(sent)
    dist.all_to_all_single(got, sent, group=group)
    got = got.reshape(rows * n, b, heads // n, d)
    return got.transpose(0, 1).contiguous()


def rows_for_heads(x, group):
    """[b, s, heads/n, d] to [b, s/n, heads, d]."""
    n = group.size()
    b, rows, heads, d = x.shape
    sent = x.reshape(b, n, rows // n, heads, d).transpose(0, 3).transpose(0, 1).contiguous()
    sent = sent.reshape(n, heads, rows // n, b, d)
    got = torch.empty_like(sent)
    dist.all_to_all_single(got, sent, group=group)
    return got.reshape(heads * n, rows // n, b, d).transpose(0, 2).contiguous()


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, there):
        ctx.group, ctx.there = group, there
        return heads_for_rows(x, group) if there else rows_for_heads(x, group)

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad, ctx.group, not ctx.there), None, None


class Ulysses(Attention):
    """Each rank attends over all rows, for its heads."""

    def __init__(self, cp_group, h=8, heads=4):
        super().__init__(h, heads)
        self.group = cp_group

    def attend(self, q, k, v):
        q, k, v = (self.there(t) for t in (q, k, v))
        return self.back(super().attend(q, k, v))

    def there(self, x):
        return Exchange.apply(x, self.group, True)

    def back(self, x):
        return Exchange.apply(x, self.group, False)


class HeadsTurned(Ulysses):
    def back(self, x):
        return Exchange.apply(x.flip(2), self.group, False)


class RowsTurned(Ulysses):
    """The halves of the rows change places before they are sent back."""

    def back(self, x):
        return Exchange.apply(torch.cat(x.chunk(2, 1)[::-1], 1), self.group, False)


class NotBack(Ulysses):
    """Takes the rows of its own heads for its heads of its rows."""

    def back(self, x):
        b, s, _, d = x.shape
        return x.reshape(b, s // self.group.size(), -1, d)


class Experts(nn.Module):
    def __init__(self, h=8, f=16, experts=4, n=1):
        super().__init__()
        self.gate = nn.Linear(h, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts // n, h, f))
        self.down = nn.Parameter(torch.randn(experts // n, f, h))

    def forward(self, x):
        p = torch.softmax(self.gate(x), -1)
        v, i = p.topk(2, -1)
        p = torch.zeros_like(p).scatter(-1, i, v)
        y = self.computed(x.expand(p.shape[1], *x.shape))
        return torch.einsum("eth,te->th", y, p)

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
    def __init__(self, ep_group, h=8, f=16, experts=4):
        super().__init__(h, f, experts, ep_group.size())
        self.group = ep_group

    def computed(self, x):
        x = AllToAll.apply(x, self.group, 0, 1)
        return AllToAll.apply(super().computed(x), self.group, 1, 0)


class OtherExperts(SplitExperts):
    def computed(self, x):
        return super().computed(x).flip(0)


def summed(model):
    split = ("up", "down")
    for name, p in model.named_parameters():
        if name not in split:
            dist.all_reduce(p.grad, group=model.group)


class Rotary(nn.Module):
    """Scores of rows that are turned by their place, as complex numbers."""

    def __init__(self, h=4, n=1):
        super().__init__()
        self.up, self.down = nn.Linear(h, 8 // n, bias=False), nn.Linear(8 // n, h, bias=False)
        angle = torch.outer(torch.arange(8.0), torch.tensor([1.0, 0.5]))
        self.turns = torch.polar(torch.ones_like(angle), angle)

    def forward(self, x):
        q = self.up(self.given(x)).unflatten(-1, (-1, 2, 2))
        turned = self.turned(torch.view_as_complex(q), self.turns[: len(x), None])
        return self.taken(self.down(torch.view_as_real(turned).flatten(1)))

    def turned(self, q, turns):
        return q * turns

    def given(self, x):
        return x

    def taken(self, y):
        return y


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
        return torch.ops.tests.all_reduce(x, group.group_name, "sum")

    @staticmethod
    def backward(ctx, grad):
        return grad, None


@torch.library.custom_op("tests::all_reduce", mutates_args=())
def all_reduce(x: torch.Tensor, group: str, how: str) -> torch.Tensor:
    x = x.clone()
    named = dist.distributed_c10d._resolve_process_group(group)
    op = dist.ReduceOp.SUM if how == "sum" else dist.ReduceOp.AVG
    dist.all_reduce(x, op=op, group=named)
    return x


@all_reduce.register_fake
def _(x, group, how):
    return torch.empty_like(x)


class SplitRotary(Rotary):
    def __init__(self, tp_group):
        super().__init__(n=tp_group.size())
        self.group = tp_group

    def given(self, x):
        return Copied.apply(x, self.group)

    def taken(self, y):
        return Reduced.apply(y, self.group)


class TurnedBack(SplitRotary):
    def turned(self, q, turns):
        return (q.conj() * turns).conj().resolve_conj()


class NotTurned(SplitRotary):
    """Leaves the rows of one rank as they are."""

    def turned(self, q, turns):
        return q * turns if self.group.rank() else q


class PartsSwapped(SplitRotary):
    def turned(self, q, turns):
        return torch.view_as_complex(torch.view_as_real(q * turns).flip(-1))


class Averaged(SplitRotary):
    """The custom op takes the mean."""

    def taken(self, y):
        return torch.ops.tests.all_reduce(y, self.group.group_name, "avg")
