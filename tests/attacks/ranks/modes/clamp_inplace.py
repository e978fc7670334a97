"""Train mode clamps a parameter in place under no_grad."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.down.bias.clamp_(-0.1, 0.1)
        return self.total(self.part(x)) + self.down.bias
