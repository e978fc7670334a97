"""Windows with a bias of each head for each pair of places, looked up in a table."""

import torch
from torch import nn


class WindowAttention(nn.Module):
    def __init__(self, width=32, heads=4, rows=3):
        super().__init__()
        self.heads, self.rows = heads, rows
        self.table = nn.Parameter(torch.randn(2 * rows - 1, heads))
        place = torch.arange(rows)
        self.register_buffer("apart", place[:, None] - place[None, :] + rows - 1)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        windows, rows, width = x.shape
        qkv = self.qkv(x).reshape(windows, rows, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        bias = self.table[self.apart.view(-1)].view(self.rows, self.rows, -1)
        scores = q @ k.transpose(-2, -1) + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        seen = torch.softmax(scores, -1) @ v
        return self.proj(seen.transpose(1, 2).reshape(windows, rows, width))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.attention = WindowAttention()

    def forward(self, x):
        return x + self.attention(self.norm(x))


def example_inputs():
    return {"x": torch.zeros(4, 3, 32)}
