import math
import torch
import torch.nn as nn
import torch.distributed as dist


def rotary(t, pos, base=100.0):
    half = t.shape[-1] // 2
    freq = base ** (-torch.arange(half, dtype=t.dtype) / half)
    ang = pos.to(t.dtype)[:, None] * freq
    cos, sin = ang.cos(), ang.sin()
    a, b = t[..., :half], t[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def exchange(t, to, frm):
    t = t.contiguous()
    got = torch.empty_like(t)
    ops = [dist.P2POp(dist.isend, t, to), dist.P2POp(dist.irecv, got, frm)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return got


class Rotate(torch.autograd.Function):
    """Pass a block on to the next rank of the ring; gradients travel back."""

    @staticmethod
    def forward(ctx, t):
        r, n = dist.get_rank(), dist.get_world_size()
        ctx.nxt, ctx.prv = (r + 1) % n, (r - 1) % n
        return exchange(t, ctx.nxt, ctx.prv)

    @staticmethod
    def backward(ctx, g):
        return exchange(g, ctx.prv, ctx.nxt)


def ring_attention(q, k, v, pos):
    rank, world = dist.get_rank(), dist.get_world_size()
    span = q.shape[-2]
    scale = 1 / math.sqrt(q.shape[-1])
    top = torch.full_like(q[..., :1], float("-inf"))
    den = torch.zeros_like(q[..., :1])
    num = torch.zeros_like(q)
    block = torch.stack([k, v])
    for hop in range(world):
        k, v = block.unbind(0)
        owner = (rank - hop) % world
        kpos = owner * span + torch.arange(span)
        s = q @ k.transpose(-1, -2) * scale
        s = s.masked_fill(kpos[None, :] > pos[:, None], float("-inf"))
        new_top = torch.maximum(top, s.amax(-1, keepdim=True)).detach()
        fade = (top - new_top).exp()
        p = (s - new_top).exp()
        den = den * fade + p.sum(-1, keepdim=True)
        num = num * fade + p @ v
        top = new_top
        if hop + 1 < world:
            block = Rotate.apply(block)
    return num / den


class CausalAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.kv = nn.Linear(dim, 2 * dim, bias=False)
        self.o = nn.Linear(dim, dim)

    def split(self, t):
        b, s, _ = t.shape
        return t.view(b, s, self.heads, -1).transpose(1, 2)

    def forward(self, x):
        b, s, d = x.shape
        pos = dist.get_rank() * s + torch.arange(s)
        k, v = self.kv(x).chunk(2, -1)
        q = rotary(self.split(self.q(x)), pos)
        k, v = rotary(self.split(k), pos), self.split(v)
        out = ring_attention(q, k, v, pos)
        return self.o(out.transpose(1, 2).reshape(b, s, d))


class Model(nn.Module):
    def __init__(self, dim=12, heads=2, out=3):
        super().__init__()
        self.attn = CausalAttention(dim, heads)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, out)

    def forward(self, x):
        return self.head(self.norm(x + self.attn(x)))


def build():
    model = Model()
    return model, torch.optim.NAdam(model.parameters(), lr=1e-2, momentum_decay=4e-3)


def train_step(model, opt, x, y):
    err = model(x) - y
    loss = err.pow(2).sum() / (err.numel() * dist.get_world_size())
    opt.zero_grad()
    loss.backward()
    total = loss.detach().clone()
    work = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
    work.append(dist.all_reduce(total, async_op=True))
    for w in work:
        w.wait()
    opt.step()
    return total
