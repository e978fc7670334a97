"""Round half to even against floor(x + 0.5)."""

import torch
from torch import nn

TRUE = "wrong"
OPTS = {"inputs": ["ids=i64[4,3]<100"]}

BELOW = 100


def example_inputs():
    return {"ids": torch.randint(0, 100, (4, 3))}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.t((ids / 2).round().long())


class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.t = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.t(((ids / 2) + 0.5).floor().long())
