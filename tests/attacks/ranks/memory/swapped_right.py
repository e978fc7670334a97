"""A tensor that nobody reads is swapped with another; what is swapped twice is as it was."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"
M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x))
        a, b = y.detach() * 2, y.detach() * 3
        torch.utils.swap_tensors(a, b)
        return y + self.down.bias + (a - 1.5 * b)
