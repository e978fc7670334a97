"""A rotary table that is kept between calls."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.attacks.blocks import Summed, ToRanks

TRUE = "right"

OPTS = {"inputs": ["x=f32[2,4,8]"]}


class Rot(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, d, 2).float() / d)))
        self.cache = None

    def forward(self, t):
        if self.cache is None or self.cache[0].shape[0] < t.shape[1]:
            a = torch.outer(torch.arange(t.shape[1]).float(), self.inv_freq)
            a = torch.cat((a, a), -1)
            self.cache = a.cos(), a.sin()
        cos, sin = (c[: t.shape[1], None] for c in self.cache)
        h = torch.cat((-t[..., 2:], t[..., :2]), -1)
        return t * cos + h * sin


class Att(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(8, 4 * heads, bias=False)
        self.k = nn.Linear(8, 4 * heads, bias=False)
        self.v = nn.Linear(8, 4 * heads, bias=False)
        self.o = nn.Linear(4 * heads, 8, bias=False)
        self.rot = Rot()

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.heads, 4)) for f in (self.q, self.k, self.v))
        q, k = self.rot(q), self.rot(k)
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))


class M(Att):
    def __init__(self):
        super().__init__(2)


class P(Att):
    def __init__(self, tp_group):
        super().__init__(1)
        self.g = tp_group

    def forward(self, x):
        return Summed.apply(super().forward(ToRanks.apply(x, self.g)), self.g)


def example_inputs():
    return {"x": torch.randn(2, 4, 8)}
