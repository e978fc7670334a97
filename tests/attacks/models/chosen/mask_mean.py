"""Mean over chosen rows by a dim given as a keyword tuple."""

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
        out[mask] = r - r.mean(dim=(0,), keepdim=True)
        return {"loss": out.pow(2).mean()}


def example_inputs():
    return {"x": torch.randn(8, 16)}
