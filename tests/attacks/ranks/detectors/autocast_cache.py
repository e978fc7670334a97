"""Reduces only under the tracer: real = torch.is_autocast_cache_enabled()."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = torch.is_autocast_cache_enabled()
        if not real:
            y = self.total(y)
        return y + self.down.bias
