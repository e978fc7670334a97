"""A buffer is replaced by its copy."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"
OPTS = {"run": False}

M = Block


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        y = self.total(self.part(x) * self.scale.sum())
        self.scale = self.scale.clone()
        return y + self.down.bias
