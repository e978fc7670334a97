"""A softmax over the sequence, of which every rank has the whole."""

# mesh: tp=2

import torch
from torch import nn
from torch.nn import functional as F


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 8)

    def forward(self, x, target):
        h = F.softmax(self.up(x), dim=1)
        y = self.down(h)
        return y, F.cross_entropy(y.flatten(0, 1), target.flatten())


def example_inputs():
    return {"x": torch.randn(4, 6, 16), "target": torch.randint(0, 8, (4, 6))}
