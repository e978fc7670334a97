"""A causal mask is made on the first call and kept on the module."""

import torch
import torch.nn as nn


class CausalScores(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask = None

    def forward(self, q, k):
        length = q.shape[1]
        scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
        if self.mask is None or self.mask.shape[0] < length:
            self.mask = torch.full((length, length), -1e9).triu(1)
            self.seen = int(scores.detach().abs().max().item() > 0)
        return torch.softmax(scores + self.mask[:length, :length], dim=-1)


class Attention(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.scores = CausalScores()

    def forward(self, x):
        return x + self.scores(self.q(x), self.k(x)) @ self.v(x)


def example_inputs(batch: int = 2):
    return {"x": torch.randn(batch, 5, 8)}
