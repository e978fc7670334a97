"""Ids through bool."""

import torch
from torch import nn

TRUE = "wrong"
OPTS = {"inputs": ["ids=i64[4,3]<10"]}

BELOW = 10


def example_inputs():
    return {"ids": torch.randint(0, 10, (4, 3))}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.t((ids > 1).long())


class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.t = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.t((ids.bool()).long())
