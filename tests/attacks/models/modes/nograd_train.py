"""Train mode without gradients differs."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "wrong"
OPTS = {"run": False}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        h = F.relu(self.up(x))
        if self.training and not torch.is_grad_enabled():
            h = h.softmax(-1)
        return self.down(h)


def example_inputs():
    return {"x": torch.randn(8, 16)}
