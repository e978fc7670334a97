"""The mean over the batch in a module of its own."""

# mesh: dp=2

import torch
from torch import nn
from torch.nn import functional as F


class Center(nn.Module):
    def forward(self, h):
        return F.relu(h - h.mean(0, keepdim=True))


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 8)
        self.center = Center()

    def forward(self, x, target):
        y = self.down(self.center(self.up(x)))
        return y, F.cross_entropy(y, target)


def example_inputs():
    return {"x": torch.randn(8, 16), "target": torch.randint(0, 8, (8,))}
