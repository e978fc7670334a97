"""Two tensors are swapped, and read as if they were not."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x))
        a, b = y.detach() * 2, y.detach() * 3
        torch.utils.swap_tensors(a, b)
        return y + self.down.bias + (b - 1.5 * a)
