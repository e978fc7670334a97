"""Rows by a mask, tanh, put back."""

import torch
from torch import nn

TRUE = "right"
OPTS = {"mesh": "dp=2"}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 8)

    def forward(self, x):
        y = self.up(x)
        mask = x[:, 0] > 0
        out = torch.zeros_like(y)
        out[mask] = y[mask].tanh()
        return {"loss": out.pow(2).mean()}


def example_inputs():
    return {"x": torch.randn(8, 16)}
