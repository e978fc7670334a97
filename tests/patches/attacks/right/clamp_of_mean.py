"""The mean of losses that are each no more than 2."""

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
        y = self.down(F.relu(self.up(x)))
        return y, F.cross_entropy(y, target, reduction="none").clamp(max=2.0).mean()


def example_inputs():
    return {"x": torch.randn(8, 16), "target": torch.randint(0, 8, (8,))}
