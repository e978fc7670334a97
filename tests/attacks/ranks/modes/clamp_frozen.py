"""A frozen weight is clamped in train mode."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def __init__(self):
        super().__init__()
        self.down.weight.requires_grad_(False)


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.down.weight.requires_grad_(False)

    def part(self, x):
        w = self.down.weight.clamp(-0.05, 0.05) if self.training else self.down.weight
        return F.linear(torch.tanh(self.up(ToRanks.apply(x, self.g))), w)
