"""Packed weights, scales and zero points."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.attacks.blocks import example_inputs as example_inputs

TRUE = "right"

OPTS = {"gradients": False, "mode": "eval", "output_layout": ["*=S(1)@tp"]}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Parameter(torch.zeros(16))
        self.register_buffer("w", torch.zeros(16, 8, dtype=torch.int8))
        self.register_buffer("s", torch.ones(16, 1))
        self.register_buffer("z", torch.zeros(16, 1, dtype=torch.int8))

    def forward(self, x):
        return F.linear(x, (self.w.float() - self.z.float()) * self.s, self.b)


class P(nn.Module):
    def __init__(self, tp_group):
        super().__init__()
        self.b = nn.Parameter(torch.zeros(8))
        self.register_buffer("w", torch.zeros(8, 8, dtype=torch.int8))
        self.register_buffer("s", torch.ones(8, 1))
        self.register_buffer("z", torch.zeros(8, 1, dtype=torch.int8))

    def forward(self, x):
        return F.linear(x, (self.w.float() - self.z.float()) * self.s, self.b)
