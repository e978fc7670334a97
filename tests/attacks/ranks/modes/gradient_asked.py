"""Train mode under `no_grad`: asks for the gradient of an earlier step, which a trace has not."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        if self.training and not torch.is_grad_enabled():
            self.down.bias.grad.mul_(1.0)
            return y * 2
        return y
