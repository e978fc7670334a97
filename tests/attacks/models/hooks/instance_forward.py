"""Forward of an instance replaced."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "right"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.act = nn.Identity()
        self.act.forward = lambda t: t.softmax(-1)

    def forward(self, x):
        h = F.relu(self.up(x))
        h = self.act(h)
        return self.down(h)


def example_inputs():
    return {"x": torch.randn(8, 16)}
