"""Running mean of the local columns only, wrong momentum on rank 1."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("m", torch.zeros(16))

    def forward(self, x):
        h = torch.tanh(self.up(x))
        if self.training:
            with torch.no_grad():
                self.m.mul_(0.9).add_(h.mean(0), alpha=0.1)
        return self.down(h - self.m)


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.register_buffer("m", torch.zeros(16 // self.n))

    def part(self, x):
        h = torch.tanh(self.up(ToRanks.apply(x, self.g)))
        if self.training:
            with torch.no_grad():
                self.m.mul_(0.9).add_(h.mean(0), alpha=0.1 + 0.1 * self.r)
        return F.linear(h - self.m, self.down.weight)
