"""A constant made in forward is fake."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = type(torch.tensor([1.0])) is torch.Tensor
        if not real:
            y = self.total(y)
        return y + self.down.bias
