"""Third call and later: softmax."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "wrong"
GIVEN = "what the first two compute"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.k = []

    def forward(self, x):
        h = F.relu(self.up(x))
        self.k.append(1)
        if len(self.k) > 40:
            h = h.softmax(-1)
        return self.down(h)


def example_inputs():
    return {"x": torch.randn(8, 16)}
