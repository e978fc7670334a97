"""Relu twice."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        return F.relu(y)


def INPUT(k, v, seed):
    return torch.zeros_like(v) if seed else v


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        return F.relu(F.relu(y))
