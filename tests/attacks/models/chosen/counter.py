"""A counter of hit experts, set to 0 at the start, scales."""

import torch
import torch.nn.functional as F
from torch import nn

TRUE = "wrong"
OPTS = {"mesh": "dp=2"}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.c = [0]

    def count(self):
        self.c[0] += 1
        return self.c[0]

    def forward(self, x):
        score = self.gate(x)
        pick = score.argmax(-1)
        onehot = F.one_hot(pick, 4).t()
        hit = (onehot.sum(-1) > 0).nonzero()
        out = torch.zeros_like(x)
        W = torch.stack([q.weight for q in self.experts])
        self.c = [0]

        for e in hit:
            k = e[0]
            i = torch.where(onehot[k])[0]
            y = F.linear(x[i], W[k])
            out.index_add_(0, i, y * self.count())

        return {"loss": out.pow(2).mean()}


def example_inputs():
    return {"x": torch.randn(8, 16)}
