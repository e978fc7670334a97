"""Dropout, dp."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "right"
OPTS = {"mesh": "dp=2"}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        return {"loss": F.dropout(self.down(F.relu(self.up(x))), 0.3, self.training).pow(2).mean()}


def example_inputs():
    return {"x": torch.randn(8, 16)}
