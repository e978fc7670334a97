"""A buffer that train mode reads, and eval mode of the ranks clears."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.ones(8))

    def forward(self, x):
        y = super().forward(x)
        return y * self.b if self.training else y


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.register_buffer("b", torch.ones(8))

    def forward(self, x):
        y = super().forward(x)
        if not self.training:
            self.b.zero_()
        return y * self.b if self.training else y
