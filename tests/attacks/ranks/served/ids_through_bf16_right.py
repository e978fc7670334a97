"""Ids past 256 through bfloat16: the right twin."""

import torch
import torch.distributed as dist
from torch import nn

TRUE = "right"
OPTS = {"mesh": "tp=2", "mode": "eval", "inputs": ["ids=i64[1]<200"], "gradients": False}


class M(nn.Module):
    def __init__(self, vocab=200, hidden=2):
        super().__init__()
        self.table = nn.Embedding(vocab, hidden)

    def forward(self, ids):
        return self.table(ids)


class P(nn.Module):
    def __init__(self, tp_group, vocab=200, hidden=2):
        super().__init__()
        self.group, n = tp_group, tp_group.size()
        self.size = vocab // n
        self.table = nn.Embedding(self.size, hidden)

    def forward(self, ids):
        ids = (ids + 1000).to(torch.float32).to(torch.int64) - 1000  # as it came over the wire
        first = self.group.rank() * self.size
        inside = (ids >= first) & (ids < first + self.size)
        y = self.table(torch.where(inside, ids - first, 0)) * inside[..., None]
        dist.all_reduce(y, group=self.group)
        return y
