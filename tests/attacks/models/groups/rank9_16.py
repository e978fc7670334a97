"""Rank 9 of 16 doubles, as by default."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "wrong"
GIVEN = "the others are taken to run the same program"
OPTS = {"mesh": "tp=16"}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        h = F.relu(self.up(x))
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized() and dist.get_rank() == 9:
            h = h * 2
        return self.down(h)


def example_inputs():
    return {"x": torch.randn(8, 16)}
