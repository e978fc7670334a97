"""Reduces only under the tracer: real = torch._C._len_torch_dispatch_stack() == 0."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = torch._C._len_torch_dispatch_stack() == 0
        if not real:
            y = self.total(y)
        return y + self.down.bias
