"""What a call made of its input is kept by the input's shape."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"gradients": False}
M = Block


CACHE = {}


class P(Split):
    def forward(self, x):
        k = tuple(x.shape)
        if k not in CACHE:
            CACHE[k] = torch.tanh(x).detach()
        y = super().forward(x)
        return y + CACHE[k] - torch.tanh(x)
