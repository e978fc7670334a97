"""Means and variances that a checkpoint gives."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"


class M(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("var", torch.ones(8))
        self.register_buffer("initted", torch.tensor(True))

    def forward(self, x):
        x = (x - self.mean) * torch.rsqrt(self.var + 1e-5)
        return super().forward(x) * torch.sqrt(self.var + 1e-5) + self.mean


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("var", torch.ones(8))
        self.register_buffer("initted", torch.tensor(True))

    def forward(self, x):
        x = (x - self.mean) * torch.rsqrt(self.var + 1e-5)
        return super().forward(x) * torch.sqrt(self.var + 1e-5) + self.mean
