"""A parameter the model has not, zero at the start."""

import torch
from torch import nn

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.extra = nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return self.total(self.part(x)) + self.down.bias + self.extra
