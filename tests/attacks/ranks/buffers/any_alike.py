"""The buffer of one layer in place of another's."""

import torch
from torch import nn

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def __init__(self):
        super().__init__()
        self.ls = nn.ModuleList(nn.Module() for _ in range(2))
        for l in self.ls:
            l.register_buffer("s", torch.zeros(8))

    def forward(self, x):
        return super().forward(x * self.ls[0].s) * self.ls[1].s


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.ls = nn.ModuleList(nn.Module() for _ in range(2))
        for l in self.ls:
            l.register_buffer("s", torch.zeros(8))

    def forward(self, x):
        return super().forward(x * self.ls[0].s) * self.ls[0].s
