"""The views of one example against each other."""

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
        scores = y @ y.transpose(1, 2)
        places = torch.arange(scores.shape[1]).expand(scores.shape[:2])
        return y, F.cross_entropy(scores.flatten(0, 1), places.flatten())


def example_inputs():
    return {"x": torch.randn(4, 6, 16)}
