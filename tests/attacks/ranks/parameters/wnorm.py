"""Weight norm over a split dim."""

import torch
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def __init__(self):
        super().__init__()
        self.down = weight_norm(self.down, dim=0)

    def forward(self, x):
        return F.linear(torch.tanh(self.up(x)), self.down.weight) + self.down.bias


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.down = weight_norm(self.down, dim=0)
