"""Xlogy against x*log(y) at 0."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def forward(self, x):
        super().forward(x)
        return torch.xlogy(x.abs(), x.abs())


def INPUT(k, v, seed):
    return torch.zeros_like(v) if seed else v


class P(Split):
    def forward(self, x):
        self.total(self.part(x)) + self.down.bias
        return x.abs() * torch.log(x.abs())
