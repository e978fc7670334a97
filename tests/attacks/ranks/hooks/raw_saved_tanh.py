"""All_reduce of what tanh saved: its backward reads the sum."""

import torch
import torch.distributed as dist
from torch import nn

from tests.attacks.blocks import example_inputs as example_inputs

TRUE = "wrong"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        t = torch.tanh(self.up(x))
        return t + t.detach()


class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.g = mesh.get_group("tp")

    def forward(self, x):
        t = torch.tanh(self.up(x))
        dist.all_reduce(t, group=self.g)
        return t
