"""A switch that is set otherwise while code is traced."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        return (y if torch.backends.mkldnn.enabled else self.total(y)) + self.down.bias
