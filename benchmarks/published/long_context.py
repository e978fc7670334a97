"""Attention over a split sequence by yunchang: a ring of messages, and an exchange of heads for
rows (Ulysses)."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, hidden=4, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = (t.view(b, s, self.heads, -1) for t in self.qkv(x).chunk(3, -1))
        return self.out(self.attend(q, k, v).reshape(b, s, h))

    def attend(self, q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        s = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
        later = torch.triu(torch.ones(s.shape[-2:], dtype=torch.bool), 1)
        return (torch.softmax(s.masked_fill(later, float("-inf")), -1) @ v).transpose(1, 2)


def scores(q, k, causal):
    s = q @ k.mT * q.shape[-1] ** -0.5
    later = torch.triu(torch.ones(s.shape[-2:], dtype=torch.bool), 1)
    return s.masked_fill(later, float("-inf")) if causal else s


def sent_on(comm, *values):
    got = [comm.send_recv(v.contiguous()) for v in values]
    comm.commit()
    comm.wait()
    return got


class Blocks(torch.autograd.Function):
    """Keys and values go around; each block corrects what was found so far."""

    @staticmethod
    def forward(ctx, q, k, v, group, ahead):
        from yunchang.ring.utils import RingComm, update_out_and_lse

        comm, own, out, total = RingComm(group), (k, v), None, None
        for step in range(comm.world_size):
            if step:
                k, v = sent_on(comm, k, v)
            if step <= comm.rank or ahead:
                s = scores(q, k, step == 0)
                more = torch.logsumexp(s, -1)
                found = (torch.exp(s - more.unsqueeze(-1)) @ v).transpose(1, 2)
                out, total = update_out_and_lse(out, total, found, more)
        ctx.group, ctx.ahead = group, ahead
        out, total = out.transpose(1, 2), total.transpose(1, 2)
        ctx.save_for_backward(q, *own, out, total)
        return out

    @staticmethod
    def backward(ctx, grad):
        from yunchang.ring.utils import RingComm

        q, k, v, out, total = ctx.saved_tensors
        comm, n = RingComm(ctx.group), q.shape[-1] ** -0.5
        dq, dk, dv = (torch.zeros_like(t) for t in (q, k, v))
        delta = (grad * out).sum(-1, keepdim=True)
        for step in range(comm.world_size):
            if step <= comm.rank or ctx.ahead:
                p = torch.exp(scores(q, k, step == 0) - total)
                ds = p * (grad @ v.mT - delta) * n
                dq, dk, dv = dq + ds @ k, dk + ds.mT @ q, dv + p.mT @ grad
            k, v, dk, dv = sent_on(comm, k, v, dk, dv)
        return dq, dk, dv, None, None


class Ring(Attention):
    """yunchang's messages and its rule for blocks, around attention in plain ops."""

    ahead = False

    def __init__(self, cp_group, hidden=4, heads=2):
        super().__init__(hidden, heads)
        self.group = cp_group

    def attend(self, q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return Blocks.apply(q, k, v, self.group, self.ahead).transpose(1, 2)


class Ulysses(Attention):
    def __init__(self, cp_group, hidden=4, heads=2):
        super().__init__(hidden, heads)
        self.group = cp_group

    def attend(self, q, k, v):
        from yunchang.comm.all_to_all import SeqAllToAll4D

        q, k, v = (SeqAllToAll4D.apply(self.group, t, 2, 1) for t in (q, k, v))
        return SeqAllToAll4D.apply(self.group, super().attend(q, k, v), 1, 2)


def summed(model):
    """Every weight is used for a part of the rows."""
    for p in model.parameters():
        torch.distributed.all_reduce(p.grad, group=model.group)


class Ahead(Ring):
    """Rows see keys that come after them, of other ranks."""

    ahead = True


class HeadsTurned(Ulysses):
    """The heads change places on the way back."""

    def attend(self, q, k, v):
        return super().attend(q, k, v).flip(2)
