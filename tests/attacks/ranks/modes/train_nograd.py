"""Differs in train mode without gradients."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"run": False}

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x))
        if self.training and not torch.is_grad_enabled():
            y = y * 1.5
        return y + self.down.bias
