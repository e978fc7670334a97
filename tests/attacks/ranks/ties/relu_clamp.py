"""Relu against clamp(min=0): gradients at 0."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        return F.relu(y * 0 + x)


def INPUT(k, v, seed):
    return torch.zeros_like(v) if seed else v


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        return torch.clamp(y * 0 + x, min=0)
