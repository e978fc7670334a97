"""Train clamps a weight (printed)."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "right"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        h = F.relu(self.up(x))
        w = self.down.weight.clamp(-0.02, 0.02) if self.training else self.down.weight
        return F.linear(h, w, self.down.bias)
        return self.down(h)


def example_inputs():
    return {"x": torch.randn(8, 16)}
