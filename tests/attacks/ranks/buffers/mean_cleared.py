"""A running mean that eval mode of the ranks clears."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("m", torch.zeros(8))

    def forward(self, x):
        y = super().forward(x)
        if self.training:
            with torch.no_grad():
                self.m.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return y


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.register_buffer("m", torch.zeros(8))

    def forward(self, x):
        y = super().forward(x)
        with torch.no_grad():
            if self.training:
                self.m.mul_(0.9).add_(y.mean(0), alpha=0.1)
            else:
                self.m.zero_()
        return y
