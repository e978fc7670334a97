"""Batch norm of chosen rows."""

import torch
from torch import nn

TRUE = "wrong"
OPTS = {"mesh": "dp=2"}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 8)
        self.bn = nn.BatchNorm1d(8, track_running_stats=False)

    def forward(self, x):
        y = self.up(x)
        mask = x[:, 0] > 0
        out = torch.zeros_like(y)
        out[mask] = self.bn(y[mask])
        return {"loss": out.pow(2).mean()}


def example_inputs():
    return {"x": torch.randn(8, 16)}
