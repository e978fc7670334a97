"""A weight that is whole is also read by itself."""

# mesh: tp=2

import torch
from torch import nn
from torch.nn import functional as F


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 8)
        self.mix = nn.Linear(8, 8)

    def forward(self, x, target):
        y = self.down(F.relu(self.up(x)))
        y = self.mix(y) + y @ self.mix.weight
        return y, F.cross_entropy(y, target)


def example_inputs():
    return {"x": torch.randn(8, 16), "target": torch.randint(0, 8, (8,))}
