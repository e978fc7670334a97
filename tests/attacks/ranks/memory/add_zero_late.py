"""0 is added to a parameter that the backward has saved: it raises."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"run": False}

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x))
        with torch.no_grad():
            self.up.weight.add_(0)
        return y + self.down.bias
