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
        alike = torch.eye(scores.shape[1])
        return y, -(F.log_softmax(scores, -1) * alike).sum(-1).mean()


def example_inputs():
    return {"x": torch.randn(4, 6, 16)}
