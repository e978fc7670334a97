"""Transpose(dim0=, dim1=), running sum over chosen rows."""

import torch
from torch import nn

TRUE = "right"
OPTS = {"mesh": "tp=2"}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 8)

    def forward(self, x):
        y = self.up(x)
        mask = x[:, 0] > 0
        out = torch.zeros_like(y)
        r = y[mask]
        r = r.transpose(dim0=0, dim1=1).cumsum(1).transpose(dim0=0, dim1=1)
        out[mask] = r
        return out


def example_inputs():
    return {"x": torch.randn(8, 16)}
