"""Scaled by the local width."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def part(self, x):
        h = torch.tanh(self.up(ToRanks.apply(x, self.g)))
        return F.linear(h * (h.shape[-1] / 16), self.down.weight)
