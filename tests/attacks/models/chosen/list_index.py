"""X[mask, [0, 1]]: joint indexing."""

import torch
from torch import nn

TRUE = "wrong"
OPTS = {"mesh": "dp=2"}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 2)

    def forward(self, x):
        y = self.up(x)
        mask = x[:, 0] > 0
        out = torch.zeros_like(y)
        out[mask] = y[mask, [0, 1]]
        return {"loss": out.pow(2).mean()}


def example_inputs():
    return {"x": torch.randn(8, 16)}
