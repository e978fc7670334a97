"""All_reduce of a factor that a product saved."""

import torch.distributed as dist
from torch import nn

from tests.attacks.blocks import example_inputs as example_inputs

TRUE = "wrong"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        t = self.up(x)
        z = t * x
        return z + 0 * (t + t.detach())


class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.g = mesh.get_group("tp")

    def forward(self, x):
        t = self.up(x)
        z = t * x
        dist.all_reduce(t, group=self.g)
        return z + 0 * t
