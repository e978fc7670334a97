"""Y.set_(...)."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        with torch.no_grad():
            y.set_((y * 2).detach())
        return y
