"""A model for one device: a block with a norm, and a small language model."""

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, hidden: int = 8, wide: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, wide)
        self.down = nn.Linear(wide, hidden)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class Trained(MLP):
    """The block with its loss."""

    def forward(self, x):
        return {"loss": super().forward(x).pow(2).mean()}


class Embedding(nn.Module):
    def __init__(self, vocab: int = 12, hidden: int = 8) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, hidden)
        self.head = nn.Linear(hidden, 4)

    def forward(self, ids):
        return self.head(self.table(ids))


def example_inputs():
    return {"x": torch.randn(4, 8)}
