"""Latents that read the input; batch and heads are merged as b * h."""

import torch
import torch.nn.functional as F
from torch import nn


class PreNorm(nn.Module):
    def __init__(self, dim, fn, context_dim=None):
        super().__init__()
        self.fn, self.norm = fn, nn.LayerNorm(dim)
        self.norm_context = nn.LayerNorm(context_dim) if context_dim is not None else None

    def forward(self, x, **kwargs):
        x = self.norm(x)
        if self.norm_context is not None:
            kwargs.update(context=self.norm_context(kwargs["context"]))
        return self.fn(x, **kwargs)


class GEGLU(nn.Module):
    def forward(self, x):
        x, gates = x.chunk(2, dim=-1)
        return x * F.gelu(gates)


class FeedForward(nn.Module):
    def __init__(self, dim, mult=4):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, dim * mult * 2), GEGLU(), nn.Linear(dim * mult, dim)
        )

    def forward(self, x):
        return self.net(x)


class Attention(nn.Module):
    def __init__(self, q_dim, c_dim=None, heads=4, dim_head=8):
        super().__init__()
        inner = heads * dim_head
        c_dim = c_dim or q_dim
        self.scale, self.heads = dim_head**-0.5, heads
        self.to_q = nn.Linear(q_dim, inner, bias=False)
        self.to_kv = nn.Linear(c_dim, inner * 2, bias=False)
        self.to_out = nn.Linear(inner, q_dim)

    def forward(self, x, context=None):
        h = self.heads
        q = self.to_q(x)
        context = x if context is None else context
        k, v = self.to_kv(context).chunk(2, dim=-1)
        b = x.shape[0]
        q, k, v = map(
            lambda t: (
                t.reshape(b, t.shape[1], h, -1).permute(0, 2, 1, 3).reshape(b * h, t.shape[1], -1)
            ),
            (q, k, v),
        )
        sim = torch.einsum("b i d, b j d -> b i j", q, k) * self.scale
        out = torch.einsum("b i j, b j d -> b i d", sim.softmax(dim=-1), v)
        out = out.reshape(b, h, -1, out.shape[-1]).permute(0, 2, 1, 3).reshape(b, x.shape[1], -1)
        return self.to_out(out)


class Perceiver(nn.Module):
    def __init__(self, dim=16, latents=8, ldim=32, depth=2, classes=10):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(latents, ldim))
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(
                nn.ModuleList(
                    [
                        PreNorm(ldim, Attention(ldim, dim), context_dim=dim),
                        PreNorm(ldim, FeedForward(ldim)),
                        PreNorm(ldim, Attention(ldim)),
                        PreNorm(ldim, FeedForward(ldim)),
                    ]
                )
            )
        self.to_logits = nn.Sequential(nn.LayerNorm(ldim), nn.Linear(ldim, classes))

    def forward(self, data):
        x = self.latents.unsqueeze(0).expand(data.shape[0], -1, -1)
        for cross, cff, att, ff in self.layers:
            x = cross(x, context=data) + x
            x = cff(x) + x
            x = att(x) + x
            x = ff(x) + x
        return self.to_logits(x.mean(dim=1))
