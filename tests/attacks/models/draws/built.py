"""Draws a number where it is built, which decides nothing."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "right"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.drawn = torch.rand(()).item()

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


def example_inputs():
    return {"x": torch.randn(8, 16)}
