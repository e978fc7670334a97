"""Dp: post-accumulate hook clamps."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "wrong"
OPTS = {"mesh": "dp=2"}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.up.weight.register_post_accumulate_grad_hook(lambda p: p.grad.clamp_(-1e-4, 1e-4))

    def forward(self, x):
        return {"loss": self.down(F.relu(self.up(x))).pow(2).mean()}


def example_inputs():
    return {"x": torch.randn(8, 16)}
