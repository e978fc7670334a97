"""A tensor hook changes the gradient of one rank."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def part(self, x):
        h = torch.tanh(self.up(ToRanks.apply(x, self.g)))
        if h.requires_grad and self.r == self.n - 1:
            h.register_hook(lambda g: g * 2)
        return F.linear(h, self.down.weight)
