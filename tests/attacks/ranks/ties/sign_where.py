"""Sign against where."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        return torch.sign(x) * y


def INPUT(k, v, seed):
    return torch.zeros_like(v) if seed else v


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        return torch.where(x >= 0, 1.0, -1.0) * y
