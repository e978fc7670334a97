"""Asks for the backend (printed)."""

import torch.distributed as dist

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "code that asks for the backend"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = dist.get_backend() != "fake"
        if not real:
            y = self.total(y)
        return y + self.down.bias
