"""Biases by distance, looked up by a buffer."""

import torch
from torch import nn

from tests.attacks.blocks import Summed, ToRanks

TRUE = "right"
OPTS = {"inputs": ["x=f32[2,4,8]"]}


class Att(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.ModuleList(nn.Linear(8, 4 * heads) for _ in range(3))
        self.o = nn.Linear(4 * heads, 8, bias=False)
        self.rel = nn.Parameter(torch.zeros(7, heads))
        i = torch.arange(4)
        self.register_buffer("index", i[None] - i[:, None] + 3)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.heads, 4)).transpose(1, 2) for f in self.qkv)
        b = self.rel[self.index.view(-1)].view(4, 4, -1).permute(2, 0, 1)
        return self.o(((q @ k.mT / 2 + b).softmax(-1) @ v).transpose(1, 2).flatten(2))


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
