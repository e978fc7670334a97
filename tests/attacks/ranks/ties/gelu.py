"""Tanh gelu against erf gelu."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        return F.gelu(y)


def INPUT(k, v, seed):
    return torch.zeros_like(v) if seed else v


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        return F.gelu(y, approximate="tanh")
