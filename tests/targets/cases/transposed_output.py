"""Two outputs of which one is the transposed other: the last lines of a contrastive model."""

import torch
from torch import nn


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        y = self.down(torch.relu(self.up(x)))
        s = y @ y.t()
        return s, s.t()


def example_inputs():
    return {"x": torch.randn(4, 16)}
