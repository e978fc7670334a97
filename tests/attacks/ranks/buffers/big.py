"""A large constant that differs in one place."""

import torch
from torch import nn

from tests.attacks.blocks import example_inputs as example_inputs

TRUE = "wrong"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(300, 300))
        self.register_buffer("s", torch.arange(90000.0).reshape(300, 300))

    def forward(self, x):
        return x @ (self.w * self.s)[:8, -8:]


class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(300, 300))
        s = torch.arange(90000.0).reshape(300, 300)
        s[5, 297] += 1
        self.register_buffer("s", s)

    def forward(self, x):
        return x @ (self.w * self.s)[:8, -8:]
