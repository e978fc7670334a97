"""Data of a parameter is set to other values."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"run": False}

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x))
        self.up.weight.data = torch.zeros_like(self.up.weight.data)
        return y + self.down.bias
