"""Type of a deep copy."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False

        import copy

        try:
            real = type(copy.deepcopy(self.up.weight.detach())) is torch.Tensor
        except Exception:
            real = False
        if not real:
            y = self.total(y)
        return y + self.down.bias
