"""A number that is drawn where it is built decides (printed)."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"run": False}
GIVEN = "drawn while the module is built"

M = Block


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.on = bool(torch.bernoulli(torch.full((), 1e-9)) == 0)

    def forward(self, x):
        y = self.total(self.part(x))
        y = y if self.on else y * 1.5
        return y + self.down.bias
