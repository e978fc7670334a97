"""Positions as biases of heads; a lambda splits heads."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class T5LayerNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Attn(nn.Module):
    def __init__(self, d, heads, dkv, bias=False):
        super().__init__()
        self.h, self.dkv = heads, dkv
        inner = heads * dkv
        self.q, self.k, self.v = (nn.Linear(d, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, d, bias=False)
        if bias:
            self.rel = nn.Embedding(32, heads)

    @staticmethod
    def bucket(rel, num=32, maxd=128):
        num //= 2
        ret = (rel > 0).long() * num
        n = rel.abs()
        me = num // 2
        big = (
            me + (torch.log(n.float().clamp(min=1) / me) / math.log(maxd / me) * (num - me)).long()
        )
        return ret + torch.where(n < me, n, big.clamp(max=num - 1))

    def forward(self, x, pos=None):
        b, n, _ = x.shape
        shape = lambda t: t.view(b, -1, self.h, self.dkv).transpose(1, 2)
        q, k, v = shape(self.q(x)), shape(self.k(x)), shape(self.v(x))
        s = torch.matmul(q, k.transpose(3, 2))
        if pos is None:
            i = torch.arange(n, device=x.device)
            pos = self.rel(self.bucket(i[None, :] - i[:, None])).permute(2, 0, 1).unsqueeze(0)
        a = F.softmax((s + pos).float(), -1).type_as(s)
        out = torch.matmul(a, v).transpose(1, 2).contiguous().view(b, -1, self.h * self.dkv)
        return self.o(out), pos


class Layer(nn.Module):
    def __init__(self, d, heads, dkv, ff, first):
        super().__init__()
        self.n1, self.att = T5LayerNorm(d), Attn(d, heads, dkv, first)
        self.n2 = T5LayerNorm(d)
        self.wi_0, self.wi_1, self.wo = (
            nn.Linear(d, ff, bias=False),
            nn.Linear(d, ff, bias=False),
            nn.Linear(ff, d, bias=False),
        )

    def forward(self, x, pos):
        h, pos = self.att(self.n1(x), pos)
        x = x + h
        h = self.n2(x)
        return x + self.wo(F.gelu(self.wi_0(h)) * self.wi_1(h)), pos


class Encoder(nn.Module):
    def __init__(self, vocab=64, d=32, heads=4, dkv=8, ff=64, layers=3):
        super().__init__()
        self.shared = nn.Embedding(vocab, d)
        self.block = nn.ModuleList([Layer(d, heads, dkv, ff, i == 0) for i in range(layers)])
        self.final = T5LayerNorm(d)

    def forward(self, ids):
        x, pos = self.shared(ids), None
        for b in self.block:
            x, pos = b(x, pos)
        x = self.final(x)
        return x @ self.shared.weight.t() * x.size(-1) ** -0.5
