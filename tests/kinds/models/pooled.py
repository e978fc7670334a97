"""A text with a class token that padding hides, by a mask of every head, and queries that pool."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norm, self.norm_up = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, attn_mask):
        h = self.norm(x)
        x = x + self.attn(h, h, h, need_weights=False, attn_mask=attn_mask)[0]
        return x + self.down(F.gelu(self.up(self.norm_up(x))))


class Pool(nn.Module):
    def __init__(self, d, heads, queries):
        super().__init__()
        self.query = nn.Parameter(torch.randn(queries, d))
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)

    def forward(self, x):
        n = x.shape[0]
        return self.attn(self.query.unsqueeze(0).expand(n, -1, -1), x, x, need_weights=False)[0]


class Text(nn.Module):
    def __init__(self, words=64, d=32, heads=4, length=8):
        super().__init__()
        self.heads = heads
        self.words, self.place = nn.Embedding(words, d), nn.Parameter(torch.randn(length, d))
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(2))
        self.pool, self.head = Pool(d, heads, 3), nn.Linear(d, 5)
        self.register_buffer("causal", torch.full((length, length), -1e4).triu(1), persistent=False)

    def forward(self, ids, y):
        hidden = torch.zeros_like(ids, dtype=self.place.dtype).masked_fill(ids == 0, -1e4)
        mask = self.causal + hidden[:, None, :]
        mask = torch.repeat_interleave(mask, self.heads, 0)
        x = self.words(ids) + self.place
        for block in self.blocks:
            x = block(x, attn_mask=mask)
        return F.cross_entropy(self.head(self.pool(x).mean(1)), y)


def example_inputs():
    return {"ids": torch.randint(0, 64, (6, 8)), "y": torch.randint(0, 5, (6,))}
