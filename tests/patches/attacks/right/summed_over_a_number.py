"""A sum over the extent of the batch that is there."""

# mesh: dp=2

import torch
from torch import nn
from torch.nn import functional as F


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 8)

    def forward(self, x):
        y = self.down(F.relu(self.up(x)))
        return y, y.pow(2).sum() / x.shape[0]


def example_inputs():
    return {"x": torch.randn(8, 16)}
