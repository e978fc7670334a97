"""Time of day."""

import time

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "wrong"
GIVEN = "reads the clock"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        h = F.relu(self.up(x))
        if time.time() % 1 > 0.98:
            h = h.softmax(-1)
        return self.down(h)


def example_inputs():
    return {"x": torch.randn(8, 16)}
