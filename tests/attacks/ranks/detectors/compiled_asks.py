"""A compiled function asks whether it is compiled."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"run": False}

M = Block


@torch.compile(backend="eager")
def step(t):
    return t * 1.5 if torch.compiler.is_compiling() else t


class P(Split):
    def forward(self, x):
        return step(self.total(self.part(x)) + self.down.bias)
