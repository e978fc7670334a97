"""Activations less their mean over the batch."""

# mesh: dp=2

import torch
from torch import nn
from torch.nn import functional as F


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 8)

    def forward(self, x, target):
        h = self.up(x)
        h = F.relu(h - h.mean(0, keepdim=True))
        y = self.down(h)
        return y, F.cross_entropy(y, target)


def example_inputs():
    return {"x": torch.randn(8, 16), "target": torch.randint(0, 8, (8,))}
