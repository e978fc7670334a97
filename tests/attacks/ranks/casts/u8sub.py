"""Uint8 subtraction wraps."""

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
        return self.t((ids - 5).clamp(min=0))


class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.t = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.t(
            (ids.to(torch.uint8) - torch.tensor(5, dtype=torch.uint8)).long().clamp(max=599)
        )
