"""Logsumexp against log of sum of exp."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        return y.logsumexp(-1)


def INPUT(k, v, seed):
    return torch.zeros_like(v) if seed else v


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        return torch.log(torch.exp(y).sum(-1))
