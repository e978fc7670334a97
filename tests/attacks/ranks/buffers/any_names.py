"""Two scalars of any value, each in place of the other."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("ca_scale", torch.zeros(1))
        self.register_buffer("dl_scale", torch.zeros(1))

    def forward(self, x):
        return super().forward(x * self.ca_scale) * self.dl_scale


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.register_buffer("ca_scale", torch.zeros(1))
        self.register_buffer("dl_scale", torch.zeros(1))

    def forward(self, x):
        return super().forward(x * self.dl_scale) * self.ca_scale
