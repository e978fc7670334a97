"""X**0 against x/x."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        return (y * 0 + x) ** 0 + y


def INPUT(k, v, seed):
    return torch.zeros_like(v) if seed else v


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        return (y * 0 + x) / (y * 0 + x) + y
