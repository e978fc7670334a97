"""In-place loss scaling of a gradient."""

import torch

from tests.attacks.blocks import Block, Split, Summed, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def total(self, y):
        class S(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t.view_as(t)

            @staticmethod
            def backward(ctx, d):
                return d.mul_(2)

        return Summed.apply(S.apply(y), self.g)
