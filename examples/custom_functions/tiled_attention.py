"""Attention tile by tile with a running maximum, the CPU path of a fused kernel."""

import torch
import torch.nn as nn

TILE = 2


class TiledAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale):
        best = q.new_full((*q.shape[:-1], 1), -1e30)
        total = torch.zeros_like(best)
        out = torch.zeros_like(q)
        rows = torch.arange(q.shape[-2])[:, None]
        for start in range(0, k.shape[-2], TILE):
            s = scale * q @ k[..., start : start + TILE, :].transpose(-1, -2)
            cols = start + torch.arange(s.shape[-1])[None, :]
            s = s.masked_fill(cols > rows, -1e30)
            new = torch.maximum(best, s.amax(-1, keepdim=True))
            p = torch.exp(s - new)
            keep = torch.exp(best - new)
            total = total * keep + p.sum(-1, keepdim=True)
            out = out * keep + p @ v[..., start : start + TILE, :]
            best = new
        out = out / total
        ctx.save_for_backward(q, k, v, out, best + total.log())
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, lse = ctx.saved_tensors
        s = ctx.scale * q @ k.transpose(-1, -2)
        future = torch.ones(s.shape[-2:], dtype=torch.bool).triu(1)
        p = torch.exp(s.masked_fill(future, -1e30) - lse)
        dv = p.transpose(-1, -2) @ grad
        dp = grad @ v.transpose(-1, -2)
        ds = p * (dp - (grad * out).sum(-1, keepdim=True)) * ctx.scale
        return ds @ k, ds.transpose(-1, -2) @ q, dv, None


class Core(nn.Module):
    def forward(self, q, k, v):
        return TiledAttention.apply(q, k, v, q.shape[-1] ** -0.5)


class Attention(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.core = Core()
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        return x + self.out(self.core(q, k, v).transpose(1, 2).reshape(b, t, w))


def example_inputs(batch: int = 2):
    return {"x": torch.randn(batch, 4, 8)}
