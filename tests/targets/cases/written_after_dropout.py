"""A result that dropout passes on in eval mode, changed in place, and a mask of bytes."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.drop = nn.Dropout(0.1)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, mask):
        batch, rows = x.shape[:2]
        q = self.q(x).view(batch, rows, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(batch, rows, self.heads, self.size).transpose(1, 2)
        v = self.v(x).view(batch, rows, self.heads, self.size).transpose(1, 2)
        scores = (q @ k.transpose(-1, -2) / self.size**0.5).masked_fill(mask == 0, -1e9)
        seen = torch.softmax(scores, -1) @ v
        y = self.drop(self.out(seen.transpose(1, 2).reshape(batch, rows, -1)))
        y += x
        return self.norm(y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 32)
        self.layers = nn.ModuleList([Attention() for _ in range(2)])

    def forward(self, ids):
        rows = ids.shape[1]
        below = torch.tril(torch.ones(rows, rows)).type(torch.ByteTensor)
        mask = (ids != 0)[:, None, None, :] & below
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x, mask)
        return x


def example_inputs():
    return {"ids": torch.arange(32).reshape(4, 8) % 16}
