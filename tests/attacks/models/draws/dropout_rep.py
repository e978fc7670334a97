"""Dropout on what every rank has (masks of ranks differ)."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "right"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Linear(16, 16)
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        x = self.drop(self.emb(x))
        return x + self.down(F.relu(self.up(x)))


def example_inputs():
    return {"x": torch.randn(8, 16)}
