"""A backward hook that norms all of a gradient: what is in front of it may be split alone."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "right"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.act = nn.Tanh()
        self.act.register_full_backward_hook(lambda m, gi, go: (gi[0] / (1 + gi[0].norm()),))

    def forward(self, x):
        h = F.relu(self.up(x))
        h = self.act(h)
        return self.down(h)


def example_inputs():
    return {"x": torch.randn(8, 16)}
