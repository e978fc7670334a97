"""Layers in a dict of numbers, and a head right behind the last."""

import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(d)
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, d)
        self.v = nn.Linear(d, d)
        self.o = nn.Linear(d, d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, c = x.shape
        h = self.norm(x)
        q, k, v = (
            m(h).view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for m in (self.q, self.k, self.v)
        )
        x = x + self.o(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        )
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self, d=32, heads=4, layers=6, vocab=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.layers = nn.ModuleDict({str(i): Block(d, heads) for i in range(layers)})
        self.out = nn.Linear(d, vocab)

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.layers.values():
            x = block(x)
        return self.out(x)
