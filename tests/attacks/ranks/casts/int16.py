"""Ids * 200 through int16."""

import torch
from torch import nn

TRUE = "wrong"
OPTS = {"inputs": ["ids=i64[4,3]<300"]}

BELOW = 300


def example_inputs():
    return {"ids": torch.randint(0, 300, (4, 3))}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.t(ids * 200 // 200)


class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.t = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.t((ids * 200).to(torch.int16).long() // 200 % 600)
