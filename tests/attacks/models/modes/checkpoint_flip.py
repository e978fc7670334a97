"""Checkpoint: the second run couples columns."""

import torch
import torch.utils.checkpoint as cp
from torch import nn

TRUE = "wrong"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.f = [0]

    def act(self, h):
        self.f[0] += 1
        return h.tanh() if self.f[0] == 1 else (h / (1 + h.abs().amax())).tanh()

    def forward(self, x):
        self.f[0] = 0
        h = cp.checkpoint(self.act, self.up(x), use_reentrant=False)
        return self.down(h)


def example_inputs():
    return {"x": torch.randn(8, 16)}
