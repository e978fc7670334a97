"""The softmax of the library, over columns that the ranks share out."""

# mesh: tp=2

import torch
from torch import nn
from torch.nn import functional as F


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 8)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x, target):
        y = self.down(self.softmax(self.up(x)))
        return y, F.cross_entropy(y, target)


def example_inputs():
    return {"x": torch.randn(8, 16), "target": torch.randint(0, 8, (8,))}
