"""Attention over a split sequence in plain `torch.distributed`: keys and values passed on from rank
to rank, and an exchange of heads for rows (Ulysses)."""

# pyright: basic

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import logsigmoid


class Attention(nn.Module):
    def __init__(self, hidden=4, heads=2, causal=True):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        b, s, h = x.shape
        parts = self.qkv(x).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = self.attend(*parts)
        return self.out(y.transpose(1, 2).reshape(b, s, h))

    def attend(self, q, k, v):
        return torch.softmax(scores(q, k, self.causal), -1) @ v


def scores(q, k, causal):
    s = q @ k.mT * q.shape[-1] ** -0.5
    later = torch.triu(torch.ones(s.shape[-2:], dtype=torch.bool), 1)
    return s.masked_fill(later, float("-inf")) if causal else s


def begun(group, *values):
    """Passes values on to the next rank: what comes from the one before, and what to wait for."""
    ranks, me = dist.get_process_group_ranks(group), group.rank()
    got, calls = [torch.empty_like(v) for v in values], []
    for value, into in zip(values, got, strict=True):
        calls.append(dist.P2POp(dist.isend, value.contiguous(), ranks[(me + 1) % len(ranks)]))
        calls.append(dist.P2POp(dist.irecv, into, ranks[me - 1]))
    return got, dist.batch_isend_irecv(calls)


def ended(calls):
    for call in calls:
        call.wait()


class Passing(torch.autograd.Function):
    """Keys and values go around while a block is computed, which corrects what was found so far.
    Their gradients follow one step behind."""

    @staticmethod
    def forward(ctx, q, k, v, group, causal):
        ctx.group, ctx.causal, own = group, causal, (k, v)
        out, total, n = None, None, group.size()
        for step in range(n):
            if step + 1 < n:
                after, calls = begun(group, k, v)
            if not causal or step <= group.rank():
                s = scores(q, k, causal and step == 0)
                more = torch.logsumexp(s, -1, keepdim=True)
                found = torch.exp(s - more) @ v
                if out is None or total is None:
                    out, total = found, more
                else:
                    out = out - torch.sigmoid(more - total) * (out - found)
                    total = total - logsigmoid(total - more)
            if step + 1 < n:
                ended(calls)
                k, v = after
        ctx.save_for_backward(q, *own, out, total)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, total = ctx.saved_tensors
        n, scale = ctx.group.size(), q.shape[-1] ** -0.5
        dq, dk, dv = (torch.zeros_like(t) for t in (q, k, v))
        delta = (grad * out).sum(-1, keepdim=True)
        for step in range(n):
            if step + 1 < n:
                after, calls = begun(ctx.group, k, v)
            if not ctx.causal or step <= ctx.group.rank():
                p = torch.exp(scores(q, k, ctx.causal and step == 0) - total)
                ds = p * (grad @ v.mT - delta) * scale
                dq, dk, dv = dq + ds @ k, dk + ds.mT @ q, dv + p.mT @ grad
            if step + 1 < n:
                ended(calls)
                k, v = after
            (dk, dv), calls = begun(ctx.group, dk, dv)
            ended(calls)
        return dq, dk, dv, None, None


class Ring(Attention):
    def __init__(self, cp_group, hidden=4, heads=2, causal=True):
        super().__init__(hidden, heads, causal)
        self.group = cp_group

    def attend(self, q, k, v):
        return Passing.apply(q, k, v, self.group, self.causal)


class OtherRows(Ring):
    """Keys meet the values of other rows."""

    def attend(self, q, k, v):
        return Passing.apply(q, k, v.flip(2), self.group, self.causal)


class Exchange(torch.autograd.Function):
    """All rows of some heads for some rows of all heads, or back."""

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
        return Exchange.apply(grad, group, joined, cut), None, None, None


class Ulysses(Attention):
    def __init__(self, cp_group, hidden=4, heads=2, causal=True):
        super().__init__(hidden, heads, causal)
        self.group = cp_group

    def attend(self, q, k, v):
        q, k, v = (Exchange.apply(t, self.group, 1, 2) for t in (q, k, v))
        return Exchange.apply(super().attend(q, k, v), self.group, 2, 1)


class HeadsBack(Ulysses):
    """Heads come back in another order."""

    def attend(self, q, k, v):
        q, k, v = (Exchange.apply(t, self.group, 1, 2) for t in (q, k, v))
        y = Attention.attend(self, q, k, v)
        return Exchange.apply(y, self.group, 2, 1).flip(1)  # the other way round


def summed(model):
    """Every weight is used for a part of the rows."""
    for p in model.parameters():
        dist.all_reduce(p.grad, group=model.group)
