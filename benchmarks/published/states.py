"""Layers that change their buffers in train mode, by hand and by PyTorch."""

import torch
import torch.distributed as dist
from torch import nn


class Normed(nn.Module):
    def __init__(self, hidden=4):
        super().__init__()
        self.up = nn.Linear(hidden, hidden)
        self.norm = nn.BatchNorm1d(hidden)

    def forward(self, x):
        return {"loss": self.norm(self.up(x)).pow(3).mean()}


class ColumnNormed(nn.Module):
    """Channels are split: each rank normalizes its own."""

    def __init__(self, tp_group, hidden=4):
        super().__init__()
        n = tp_group.size()
        self.up = nn.Linear(hidden, hidden // n)
        self.norm = nn.BatchNorm1d(hidden // n)

    def forward(self, x):
        return self.norm(self.up(x))


class Whole(Normed):
    def forward(self, x):
        return self.norm(self.up(x))
