"""Try/except around a check that only fails on fake tensors."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False

        try:
            real = bool(torch.isfinite(y).all())
        except Exception:
            real = False
        if not real:
            y = self.total(y)
        return y + self.down.bias
