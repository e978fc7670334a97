"""Threads (environment)."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = torch.get_num_threads() != 1 or not torch.backends.mkldnn.is_available()
        if not real:
            y = self.total(y)
        return y + self.down.bias
