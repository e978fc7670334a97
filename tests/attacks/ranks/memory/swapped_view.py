"""A tensor is swapped of which there is a view: PyTorch raises."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x))
        a, b = y.detach() * 2, y.detach() * 3
        row = a[0]
        torch.utils.swap_tensors(a, b)
        return y + self.down.bias + 0 * row
