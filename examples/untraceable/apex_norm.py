"""A block whose norm is a class of apex: without apex nothing of it runs."""

import torch
import torch.nn as nn
from apex.normalization import FusedRMSNorm


class Block(nn.Module):
    def __init__(self, width=8, hidden=16):
        super().__init__()
        self.norm = FusedRMSNorm(width, eps=1e-5)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def example_inputs(batch: int = 4):
    return {"x": torch.randn(batch, 8)}
