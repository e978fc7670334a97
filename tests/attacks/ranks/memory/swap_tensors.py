"""Torch.utils.swap_tensors."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        z = y * 2
        torch.utils.swap_tensors(y, z)
        return y
