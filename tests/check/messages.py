"""Modules whose ranks send each other messages, as their users write them, and the models."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import logsigmoid, pad


def shifted(x, group, to, by, tags=(0, 0), wait=True):
    """What the rank `by` places before sends, where this one sends `to` places on."""
    ranks, me = dist.get_process_group_ranks(group), group.rank()
    out = torch.empty_like(x)
    there, here = ranks[(me + to) % len(ranks)], ranks[(me - by) % len(ranks)]
    sent = dist.P2POp(dist.isend, x.contiguous(), there, group, tags[0])
    got = dist.P2POp(dist.irecv, out, here, group, tags[1])
    for work in dist.batch_isend_irecv([sent, got]):
        if wait:
            work.wait()
    return out


class Halves(nn.Module):
    """The rows of the other half."""

    def forward(self, x):
        half = len(x) // 2
        return torch.cat([x[half:], x[:half]])


class Passed(nn.Module):
    def __init__(self, cp_group):
        super().__init__()
        self.group = cp_group
        self.after = dist.get_process_group_ranks(cp_group)[1 - cp_group.rank()]

    def forward(self, x):
        return shifted(x, self.group, 1, 1)


class ByParity(Passed):
    """Blocking calls, in an order in which no rank waits for ever."""

    def forward(self, x):
        out = torch.empty_like(x)
        calls = [lambda: dist.send(x, self.after), lambda: dist.recv(out, self.after)]
        for call in calls if self.group.rank() == 0 else reversed(calls):
            call()
        return out


class Together(Passed):
    """Two messages to one rank, the later one waited for first, and barriers."""

    def forward(self, x):
        out = torch.empty_like(x)
        dist.barrier()
        calls = [dist.irecv(out[:1], self.after), dist.irecv(out[1:], self.after)]
        calls += [dist.isend(x[:1], self.after), dist.isend(x[1:], self.after)]
        for call in reversed(calls):
            call.wait()
        dist.barrier(group=self.group)
        return out


class TwiceOn(Passed):
    def forward(self, x):
        return shifted(shifted(x, self.group, 1, 1), self.group, 1, 1)


class OtherTag(Passed):
    def forward(self, x):
        return shifted(x, self.group, 1, 1, (1, 2))


class NotWaited(Passed):
    def forward(self, x):
        return shifted(x, self.group, 1, 1, wait=False) + 0


class FaceToFace(Passed):
    def forward(self, x):
        out = torch.empty_like(x)
        dist.send(x, self.after)
        dist.recv(out, self.after)
        return out


class Crossed(Passed):
    """Rank 1 takes the second message first."""

    def forward(self, x):
        out = torch.empty_like(x)
        first = slice(0, 1) if self.group.rank() == 0 else slice(1, 2)
        second = slice(1, 2) if self.group.rank() == 0 else slice(0, 1)
        calls = [dist.isend(x[:1], self.after), dist.isend(x[1:], self.after)]
        calls += [dist.irecv(out[first], self.after), dist.irecv(out[second], self.after)]
        for call in calls:
            call.wait()
        return out


class NeverReceived(Passed):
    def forward(self, x):
        dist.isend(x, self.after).wait()
        return shifted(x, self.group, 1, 1)


class NeverSent(Passed):
    def forward(self, x):
        if self.group.rank() == 0:
            dist.recv(torch.empty_like(x), self.after)
        return shifted(x, self.group, 1, 1)


class ChangedInFlight(Passed):
    def forward(self, x):
        x, out = x.clone(), torch.empty_like(x)
        calls = [dist.irecv(out, self.after), dist.isend(x, self.after)]
        x.mul_(2)
        for call in calls:
            call.wait()
        return out


class OneBarrier(Passed):
    def forward(self, x):
        if self.group.rank() == 0:
            dist.barrier()
        return shifted(x, self.group, 1, 1)


class BarrierForReduce(Passed):
    """One rank is at a barrier, the other sums up."""

    def forward(self, x):
        calls = [lambda: dist.barrier(self.group), lambda: dist.all_reduce(x.clone())]
        for call in calls if self.group.rank() == 0 else reversed(calls):
            call()
        return shifted(x, self.group, 1, 1)


class Stencil(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2))

    def forward(self, x):
        return self.of(pad(x, (0, 0, 1, 1)))

    def of(self, x):
        return x[:-2] * self.weight[0] + x[1:-1] * self.weight[1] + x[2:] * self.weight[2]


def exchanged(group, down, up):
    """What the ranks before and after send: zeros at the ends."""
    me, ranks = group.rank(), dist.get_process_group_ranks(group)
    before, after = torch.zeros_like(up), torch.zeros_like(down)
    calls = []
    if me > 0:
        calls += [dist.P2POp(dist.isend, down.contiguous(), ranks[me - 1], group)]
        calls += [dist.P2POp(dist.irecv, before, ranks[me - 1], group)]
    if me < len(ranks) - 1:
        calls += [dist.P2POp(dist.isend, up.contiguous(), ranks[me + 1], group)]
        calls += [dist.P2POp(dist.irecv, after, ranks[me + 1], group)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return before, after


class Edges(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, wrong):
        ctx.group = group
        edges = x[:1], x[-1:]
        before, after = exchanged(group, *(reversed(edges) if wrong else edges))
        return torch.cat([before, x, after])

    @staticmethod
    def backward(ctx, grad):
        before, after = exchanged(ctx.group, grad[:1], grad[-1:])
        out = grad[1:-1].clone()
        out[:1] += before
        out[-1:] += after
        return out, None, None


class SplitStencil(Stencil):
    wrong = False

    def __init__(self, cp_group):
        super().__init__()
        self.group = cp_group

    def forward(self, x):
        return self.of(Edges.apply(x, self.group, self.wrong))


class WrongEdges(SplitStencil):
    wrong = True


def summed(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, group=model.group)


class Attention(nn.Module):
    """Causal, of one head; the projections of queries, keys and values are made of a row each."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Parameter(torch.randn(3, 2))

    def forward(self, x):
        q, k, v = (x * row for row in self.qkv)
        return torch.softmax(scores(q, k, True), -1) @ v


def scores(q, k, causal):
    out = q @ k.T
    later = torch.triu(torch.ones(out.shape, dtype=torch.bool), 1)
    return out.masked_fill(later, float("-inf")) if causal else out


class Ring(torch.autograd.Function):
    """Keys and values go around; what was found so far is corrected by each block."""

    @staticmethod
    def forward(ctx, q, k, v, group, skipped):
        own, out, total = (k, v), None, None
        for step in range(group.size()):
            if step:
                k, v = shifted(k, group, 1, 1), shifted(v, group, 1, 1)
            if step > group.rank():
                continue
            s = scores(q, k, step == 0)
            more = torch.logsumexp(s, -1, keepdim=True)
            found = torch.exp(s - more) @ v
            if out is None:
                out, total = found, more
            elif not skipped:
                out = out - torch.sigmoid(more - total) * (out - found)
                total = total - logsigmoid(total - more)
        ctx.group = group
        ctx.save_for_backward(q, *own, out, total)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, total = ctx.saved_tensors
        dq, dk, dv = (torch.zeros_like(t) for t in (q, k, v))
        delta = (grad * out).sum(-1, keepdim=True)
        for step in range(ctx.group.size()):
            if step <= ctx.group.rank():
                p = torch.exp(scores(q, k, step == 0) - total)
                ds = p * (grad @ v.T - delta)
                dq, dk, dv = dq + ds @ k, dk + ds.T @ q, dv + p.T @ grad
            k, v, dk, dv = (shifted(t, ctx.group, 1, 1) for t in (k, v, dk, dv))
        return dq, dk, dv, None, None


class RingAttention(Attention):
    skipped = False

    def __init__(self, cp_group):
        super().__init__()
        self.group = cp_group

    def forward(self, x):
        q, k, v = (x * row for row in self.qkv)
        return Ring.apply(q, k, v, self.group, self.skipped)


class SkippedBlock(RingAttention):
    skipped = True
