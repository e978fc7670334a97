"""Attention of which each head has numbers of its own, beside the projections."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Sink(nn.Module):
    """A logit for each head that attends to nothing."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.sinks = nn.Parameter(torch.zeros(heads))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, -1, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) * 8**-0.5
        sinks = self.sinks.reshape(1, -1, 1, 1).expand(b, -1, t, -1)
        chances = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
        return self.o((chances @ v).transpose(1, 2).reshape(b, t, -1))


class Gated(Sink):
    """What each head gives is scaled by a number of it."""

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, -1, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) * 8**-0.5
        scale = (torch.logsumexp(scores, -1) - self.sinks.view(1, -1, 1)).sigmoid()
        out = scores.softmax(-1) @ v * scale.unsqueeze(-1)
        return self.o(out.transpose(1, 2).reshape(b, t, -1))


class Sinks(nn.Module):
    def __init__(self, vocab=64, d=32, heads=4, kind=Sink):
        super().__init__()
        self.emb, self.head = nn.Embedding(vocab, d), nn.Linear(d, vocab)
        self.layers = nn.ModuleList(kind(d, heads) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))

    def forward(self, ids, y):
        x = self.emb(ids)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x))
        return F.cross_entropy(self.head(x).transpose(1, 2), y)


class GatedSinks(Sinks):
    def __init__(self):
        super().__init__(kind=Gated)


class Near(nn.Module):
    """A logit for each distance: a table that all heads share."""

    def __init__(self, d, reach):
        super().__init__()
        self.table = nn.Parameter(torch.randn(2 * reach - 1, d) * d**-0.5)
        at = torch.arange(reach)
        self.register_buffer("far", at[:, None] - at[None, :] + reach - 1)

    def forward(self, q):
        return torch.einsum("bid,ijd->bij", q, self.table[self.far])


class Folded(nn.Module):
    """Heads inside the batch, the mask repeated for each."""

    def __init__(self, d=32, heads=4, reach=8):
        super().__init__()
        self.heads, self.wide = heads, d // heads
        self.q, self.kv, self.o = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, 64)
        self.near = Near(d // heads, reach)

    def forward(self, ids, y):
        x = F.one_hot(ids % 32, 32).float()
        (b, t, _), h = x.shape, self.heads
        q, k, v = (
            f.reshape(b, t, h, self.wide).transpose(1, 2).reshape(b * h, t, self.wide)
            for f in (self.q(x), *self.kv(x).chunk(2, dim=-1))
        )
        mask = torch.ones(b, t).cumsum(1) > 2
        mask = mask[:, None].repeat_interleave(len(q) // b, dim=0)
        scores = (q @ k.transpose(-1, -2) + self.near(q)).masked_fill(mask, -1e9)
        out = (scores.softmax(-1) @ v).reshape(b, h, t, self.wide).transpose(1, 2)
        return F.cross_entropy(self.o(out.reshape(b, t, h * self.wide)).transpose(1, 2), y)


class Masked(nn.Module):
    """`nn.MultiheadAttention` with masks, and with the weights that it returns when not asked."""

    def __init__(self, vocab=64, d=32):
        super().__init__()
        self.emb, self.head = nn.Embedding(vocab, d), nn.Linear(d, vocab)
        self.first = nn.MultiheadAttention(d, 4, batch_first=True)
        self.second = nn.MultiheadAttention(d, 4, bias=False, batch_first=True)
        self.third = nn.MultiheadAttention(d, 4)

    def forward(self, ids, y):
        x, t = self.emb(ids), ids.shape[1]
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        x = x + self.first(x, x, x, attn_mask=later)[0]
        few, seen = x[:, :4], self.second(x[:, :4], x, x, ids == 0)
        x = x + (seen[1].transpose(1, 2) @ (few + seen[0]))
        x = x.transpose(0, 1)
        x = x + self.third(x, x.tanh(), x, need_weights=False)[0]
        return F.cross_entropy(self.head(x.transpose(0, 1)).transpose(1, 2), y)


def example_inputs():
    return {"ids": torch.randint(0, 64, (4, 8)), "y": torch.randint(0, 64, (4, 8))}
