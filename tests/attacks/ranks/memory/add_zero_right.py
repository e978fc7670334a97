"""0 is added to a parameter."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"
OPTS = {"run": False}

M = Block


class P(Split):
    def forward(self, x):
        with torch.no_grad():
            self.up.weight.add_(0)
        y = self.total(self.part(x))
        return y + self.down.bias
