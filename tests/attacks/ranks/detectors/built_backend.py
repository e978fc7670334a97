"""Asks for the backend where it is built."""

import torch.distributed as dist

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"run": False}

M = Block


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.on = dist.get_backend() == "gloo"

    def forward(self, x):
        y = self.total(self.part(x))
        y = y * 1.5 if self.on else y
        return y + self.down.bias
