"""Experts whose weights are looked up for each token, with biases."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Experts(nn.Module):
    """Gate and up in turn along the hidden units."""

    def __init__(self, count, d, hidden):
        super().__init__()
        self.w_in = nn.Parameter(torch.randn(count, d, 2 * hidden) * 0.1)
        self.b_in = nn.Parameter(torch.zeros(count, 2 * hidden))
        self.w_out = nn.Parameter(torch.randn(count, hidden, d) * 0.1)
        self.b_out = nn.Parameter(torch.zeros(count, d))

    def forward(self, x, chosen, weights):
        pairs = x.repeat_interleave(chosen.shape[1], 0)
        chosen = chosen.reshape(-1)
        h = torch.bmm(pairs.unsqueeze(1), self.w_in[chosen]).squeeze(1) + self.b_in[chosen]
        h = F.silu(h[..., ::2]) * (h[..., 1::2] + 1)
        y = torch.bmm(h.unsqueeze(1), self.w_out[chosen]).squeeze(1) + self.b_out[chosen]
        y = y * weights.reshape(-1, 1)
        return y.view(x.shape[0], -1, x.shape[1]).sum(1)


class Biased(nn.Module):
    def __init__(self, vocab=64, d=32, count=4, hidden=48):
        super().__init__()
        self.emb, self.norm = nn.Embedding(vocab, d), nn.LayerNorm(d)
        self.router, self.experts = nn.Linear(d, count), Experts(count, d, hidden)
        self.head = nn.Linear(d, vocab)

    def forward(self, ids, y):
        x = self.emb(ids)
        h = self.norm(x).reshape(-1, x.shape[-1])
        best, chosen = self.router(h).topk(2, dim=-1)
        x = x + self.experts(h, chosen, best.softmax(-1)).view(x.shape)
        return F.cross_entropy(self.head(x).transpose(1, 2), y)


def example_inputs():
    return {"ids": torch.randint(0, 64, (4, 6)), "y": torch.randint(0, 64, (4, 6))}
