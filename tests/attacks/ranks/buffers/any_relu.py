"""A buffer of any value, cut at 0."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.zeros(8))

    def forward(self, x):
        return super().forward(x) * self.b


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.register_buffer("b", torch.zeros(8))

    def forward(self, x):
        return super().forward(x) * torch.relu(self.b)
