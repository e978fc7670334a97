"""Rows of a choice viewed as 8 rows."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "right"
OPTS = {"mesh": "tp=2"}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        y = self.down(F.relu(self.up(x)))
        mask = x[:, 0] > 0
        out = torch.zeros_like(y)
        out[mask] = y[mask].view(8, -1).softmax(1).view(-1, 16)
        return out


def example_inputs():
    return {"x": torch.randn(8, 16)}
