"""Function modes switched off around a mean over chosen rows."""

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
        mask = x[:, 0] > 0
        out = torch.zeros_like(y)
        r = y[mask]
        with torch._C.DisableTorchFunction():
            s = r.mean(0, keepdim=True)
        out[mask] = r * 1.0
        return {"loss": (out - s).pow(2).mean()}


def example_inputs():
    return {"x": torch.randn(8, 16)}
