"""A tiny classifier. It says nothing about parallelism."""

import torch
import torch.nn as nn
from torch.nn import functional as F


class MLP(nn.Module):
    def __init__(self, features: int = 16, hidden: int = 64, classes: int = 8):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, classes)

    def forward(self, x, target):
        logits = self.down(F.relu(self.up(x)))
        loss = F.cross_entropy(logits, target)
        return logits, loss


def example_inputs(batch: int = 8) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(batch, 16), "target": torch.randint(0, 8, (batch,))}
