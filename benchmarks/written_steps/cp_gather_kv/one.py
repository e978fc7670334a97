import torch
import torch.nn as nn
import torch.nn.functional as F


def rope(x, positions):
    half = x.shape[-1] // 2
    freq = 1.0 / (100.0 ** (torch.arange(half, device=x.device, dtype=x.dtype) / half))
    angle = positions.to(x.dtype)[:, None] * freq
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.kv = nn.Linear(dim, 2 * dim, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)

    def split(self, t):
        return t.view(t.shape[0], t.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x):
        positions = torch.arange(x.shape[1], device=x.device)
        k, v = self.kv(x).chunk(2, dim=-1)
        q, k, v = self.split(self.q(x)), self.split(k), self.split(v)
        q, k = rope(q, positions), rope(k, positions)
        keep = positions[:, None] >= positions[None, :]
        scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~keep, float("-inf")).softmax(dim=-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class Lm(nn.Module):
    def __init__(self, vocab=16, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.attn_norm = nn.RMSNorm(dim, eps=1e-6)
        self.attn = Attention(dim, 2)
        self.mlp = nn.Sequential(nn.RMSNorm(dim, eps=1e-6), nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        h = self.emb(ids)
        h = h + self.attn(self.attn_norm(h))
        return self.head(h + self.mlp(h))


def build():
    net = Lm()
    return net, torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.01)


def train_step(net, opt, ids, labels):
    loss = F.cross_entropy(net(ids).flatten(0, 1), labels.flatten())
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.detach()
