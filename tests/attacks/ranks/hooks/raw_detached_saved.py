"""All_reduce of a detached alias of what a product saved."""

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
        return torch.sigmoid(self.up(x))


class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.g = mesh.get_group("tp")

    def forward(self, x):
        s = torch.sigmoid(self.up(x))
        y = s + 0
        dist.all_reduce(s.detach(), group=self.g)
        return y
