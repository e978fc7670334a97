"""A plain attribute tensor in place of the buffer, first part."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("s", torch.arange(16.0) / 16)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)) * self.s)


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.s = (torch.arange(16.0) / 16)[: 16 // self.n].clone()

    def part(self, x):
        return F.linear(torch.tanh(self.up(ToRanks.apply(x, self.g))) * self.s, self.down.weight)
