"""Forward hook softmax on up."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "right"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.up.register_forward_hook(lambda m, a, o: o.softmax(-1))

    def forward(self, x):
        h = F.relu(self.up(x))
        return self.down(h)


def example_inputs():
    return {"x": torch.randn(8, 16)}
