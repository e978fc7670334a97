"""Fmod against remainder."""

import torch
from torch import nn

TRUE = "wrong"
OPTS = {"inputs": ["ids=i64[4,3]<20"]}

BELOW = 20


def example_inputs():
    return {"ids": torch.randint(0, 20, (4, 3))}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.t(torch.remainder(ids - 7, 4))


class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.t = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.t(torch.fmod(ids - 7, 4).abs())
