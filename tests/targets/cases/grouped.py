"""Grouped heads: each projection is reshaped on lines of its own, keys and values are repeated."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(32, 32, bias=False)
        self.k = nn.Linear(32, 16, bias=False)
        self.o = nn.Linear(32, 32, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q = self.q(x)
        q = q.view(b, t, 4, 8)
        q = q.view(b, t, 4, 4, 2).flip(-1).flatten(3)
        k = self.k(x).view(b, t, 2, 8)
        k = k[:, :, :, None, :].expand(b, t, 2, 2, 8).reshape(b, t, 4, 8)
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True)
        return x + self.o(y.transpose(1, 2).reshape(b, t, c))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def example_inputs():
    return {"x": torch.randn(4, 8, 32)}
