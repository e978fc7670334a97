"""Dp: mixup with rows in reverse order, drawn."""

import random

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "wrong"
OPTS = {"mesh": "dp=2"}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        if self.training and random.random() > 0.5:
            x = 0.7 * x + 0.3 * x.flip(0)
        return {"loss": self.down(F.relu(self.up(x))).pow(2).mean()}


def example_inputs():
    return {"x": torch.randn(8, 16)}
