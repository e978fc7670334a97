"""A softmax in a module of its own, of what is whole."""

# mesh: tp=2

import torch
from torch import nn
from torch.nn import functional as F


class Weights(nn.Module):
    def forward(self, h):
        return F.softmax(h, dim=-1)


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 8)
        self.weights = Weights()

    def forward(self, x, target):
        y = self.weights(self.down(F.relu(self.up(x))))
        return y, F.cross_entropy(y, target)


def example_inputs():
    return {"x": torch.randn(8, 16), "target": torch.randint(0, 8, (8,))}
