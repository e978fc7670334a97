"""Overflow of int32 in a hash."""

import torch
from torch import nn

TRUE = "wrong"
OPTS = {"inputs": ["ids=i64[4,3]<9000"]}

BELOW = 9000


def example_inputs():
    return {"ids": torch.randint(0, 9000, (4, 3))}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.t(ids * 1000003 % 600)


class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.t = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.t((ids.to(torch.int32) * 1000003).long() % 600)
