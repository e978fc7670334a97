"""A gradient changed in place that another branch shares."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"

M = Block


class P(Split):
    def forward(self, x):
        class S(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t.view_as(t)

            @staticmethod
            def backward(ctx, d):
                return d.mul_(2) / 2

        y = self.total(self.part(x))
        return S.apply(y) + self.down.bias
