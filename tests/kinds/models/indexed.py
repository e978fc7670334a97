"""Attention to the few places that a part without gradients chooses, in layers that are alike."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Chooser(nn.Module):
    def __init__(self, d, few):
        super().__init__()
        self.few, self.q, self.k = few, nn.Linear(d, d), nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        scores = self.q(x) @ self.norm(self.k(x)).transpose(-1, -2)
        return scores.topk(self.few, dim=-1).indices


class Attention(nn.Module):
    def __init__(self, d, heads, few):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.heads, self.chooser = heads, Chooser(d, few)

    def forward(self, x):
        b, t, _ = x.shape
        chosen = self.chooser(x)
        mask = torch.full((b, t, t), float("-inf"), dtype=x.dtype).scatter(-1, chosen, 0.0)
        q, k, v = (f(x).view(b, t, -1, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) * 8**-0.5 + mask.unsqueeze(1)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1))


class Block(nn.Module):
    def __init__(self, d, heads, few):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(d), Attention(d, heads, few)

    def forward(self, x):
        return x + self.attention(self.norm(x))


class Sparse(nn.Module):
    def __init__(self, vocab=64, d=32, heads=4, few=3):
        super().__init__()
        self.emb, self.head = nn.Embedding(vocab, d), nn.Linear(d, vocab)
        self.layers = nn.ModuleList(Block(d, heads, few) for _ in range(2))

    def forward(self, ids, y):
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).transpose(1, 2), y)
