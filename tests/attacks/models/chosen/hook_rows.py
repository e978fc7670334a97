"""A hook on the scattered result whose gradient is centred over rows."""

import torch
from torch import nn

TRUE = "wrong"
OPTS = {"mesh": "dp=2"}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 8)

    def forward(self, x):
        y = self.up(x)
        if y.requires_grad:
            y.register_hook(lambda g: g - g.mean(0))
        mask = x[:, 0] > 0
        out = torch.zeros_like(y)
        out[mask] = y[mask].tanh()
        return {"loss": out.pow(2).mean()}


def example_inputs():
    return {"x": torch.randn(8, 16)}
