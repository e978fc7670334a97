"""Decoders whose blocks call `forward` by name, with grouped heads and rotation of pairs."""

import torch
from torch import nn
from torch.nn import functional as F


def rotated(x, cos, sin):
    a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(3)


class Attention(nn.Module):
    def __init__(self, dim=32, heads=8, groups=4):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, dim // heads
        self.q, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, groups * self.size, bias=False)
        self.v = nn.Linear(dim, groups * self.size, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q(x)
        k = self.k(x)
        v = self.v(x)
        q = q.view(b, t, self.heads, self.size)
        k = k.view(b, t, self.groups, self.size)
        v = v.view(b, t, self.groups, self.size)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k, v = (z.repeat_interleave(self.heads // self.groups, dim=2) for z in (k, v))
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


class CountingAttention(nn.Module):
    """What it computes depends on how many heads a rank has."""

    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(b, t, self.heads, self.size).transpose(1, 2)
        v = self.v(x).view(b, t, self.heads, self.size).transpose(1, 2)
        y = F.scaled_dot_product_attention(q * (q.shape[1] / 4), k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 128, bias=False), nn.Linear(128, 32, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Block(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attn, self.mlp = attention(), Mlp()

    def forward(self, x, cos, sin):
        x = x + self.attn.forward(x, cos, sin)
        return x + self.mlp.forward(x)


class Grouped(nn.Module):
    attention = Attention

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block(self.attention) for _ in range(2))
        angles = torch.outer(torch.arange(12).float(), 1.0 / 100 ** torch.arange(0, 1, 0.5))
        self.register_buffer("cos", angles.cos()[None, :, None, :])
        self.register_buffer("sin", angles.sin()[None, :, None, :])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return x


class Counting(Grouped):
    attention = CountingAttention


def example_inputs():
    return {"x": torch.randn(2, 12, 32)}
