import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d)), eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = (
            f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True
        )
        y = y.transpose(1, 2).reshape(b, t, -1)
        return self.o(y)


class SwiGLU(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.gate, self.up = nn.Linear(d, hidden, bias=False), nn.Linear(d, hidden, bias=False)
        self.down = nn.Linear(hidden, d, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, d, heads, drop):
        super().__init__()
        self.n1, self.n2 = RMSNorm(d), RMSNorm(d)
        self.attn, self.mlp = Attention(d, heads), SwiGLU(d, 2 * d)
        self.drop = nn.Dropout(drop)

    def forward(self, x, cos, sin):
        x = x + self.drop(self.attn(self.n1(x), cos, sin))
        return x + self.drop(self.mlp(self.n2(x)))


class GPT(nn.Module):
    drop = 0.0

    def __init__(self, vocab=64, d=32, heads=4, layers=2, length=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d, heads, self.drop) for _ in range(layers))
        self.norm = RMSNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.emb.weight
        at = torch.arange(length)[:, None] * 100.0 ** (-torch.arange(0, d // heads, 2) * heads / d)
        self.register_buffer("cos", torch.cat((at, at), -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat((at, at), -1).sin(), persistent=False)

    def hidden(self, ids):
        x, t = self.emb(ids), ids.shape[1]
        for block in self.blocks:
            x = block(x, self.cos[:t], self.sin[:t])
        return self.norm(x)

    def forward(self, ids, y):
        return F.cross_entropy(self.head(self.hidden(ids)).flatten(0, 1), y.flatten())


class Dropped(GPT):
    drop = 0.1


class Outside(GPT):
    def forward(self, ids):
        return self.head(self.hidden(ids))


class Checkpointed(GPT):
    def hidden(self, ids):
        x, t = self.emb(ids), ids.shape[1]
        for block in self.blocks:
            x = checkpoint(block, x, self.cos[:t], self.sin[:t], use_reentrant=False)
        return self.norm(x)


def example_inputs():
    return {"ids": torch.randint(0, 64, (4, 8)), "y": torch.randint(0, 64, (4, 8))}
