"""Mixture of depths: only tokens with a positive score go through the block, found in Python."""

import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class SkipTokens(nn.Module):
    def __init__(self, width=8, hidden=16):
        super().__init__()
        self.score = nn.Linear(width, 1, bias=False)
        self.block = Block(width, hidden)

    def forward(self, x):
        score = self.score(x)[:, 0]
        chosen = torch.tensor([n for n, s in enumerate(score.tolist()) if s > 0]).long()
        picked = self.block(x[chosen]) * torch.sigmoid(score[chosen])[:, None]
        return x.index_add(0, chosen, picked)


def example_inputs(batch: int = 6):
    return {"x": torch.randn(batch, 8)}
