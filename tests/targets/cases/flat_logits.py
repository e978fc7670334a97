"""Logits whose batch and tokens are one dim."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(32, 32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)
        self.head = nn.Linear(32, 32)

    def forward(self, ids):
        x = self.table(ids)
        x = x + self.down(torch.relu(self.up(x)))
        return self.head(x).view(-1, 32)


def example_inputs():
    return {"ids": torch.arange(32).reshape(4, 8)}
