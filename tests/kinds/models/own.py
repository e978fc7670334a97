"""Attention and feed-forward that multiply by parameters of their own, without nn.Linear."""

import torch
import torch.nn.functional as F
from torch import nn


class PerHead(nn.Module):
    def __init__(self, d_model, n_heads, d_head, n_ctx):
        super().__init__()
        self.W_Q = nn.Parameter(torch.randn(n_heads, d_model, d_head) * 0.02)
        self.W_K = nn.Parameter(torch.randn(n_heads, d_model, d_head) * 0.02)
        self.W_V = nn.Parameter(torch.randn(n_heads, d_model, d_head) * 0.02)
        self.W_O = nn.Parameter(torch.randn(n_heads, d_head, d_model) * 0.02)
        self.b_Q = nn.Parameter(torch.zeros(n_heads, d_head))
        self.b_O = nn.Parameter(torch.zeros(d_model))
        self.scale = d_head**-0.5
        self.register_buffer("mask", torch.tril(torch.ones(n_ctx, n_ctx, dtype=torch.bool)))

    def forward(self, x):
        q = torch.einsum("bpd,ndh->bpnh", x, self.W_Q) + self.b_Q
        k = torch.einsum("bpd,ndh->bpnh", x, self.W_K)
        v = torch.einsum("bpd,ndh->bpnh", x, self.W_V)
        s = torch.einsum("bqnh,bknh->bnqk", q, k) * self.scale
        s = torch.where(self.mask[: x.size(1), : x.size(1)], s, torch.tensor(-1e5, device=x.device))
        z = torch.einsum("bknh,bnqk->bqnh", v, s.softmax(-1))
        return torch.einsum("bqnh,nhd->bqd", z, self.W_O) + self.b_O


class MLP(nn.Module):
    def __init__(self, d_model, d_mlp):
        super().__init__()
        self.W_in = nn.Parameter(torch.randn(d_model, d_mlp) * 0.02)
        self.b_in = nn.Parameter(torch.zeros(d_mlp))
        self.W_out = nn.Parameter(torch.randn(d_mlp, d_model) * 0.02)
        self.b_out = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return F.gelu(x @ self.W_in + self.b_in) @ self.W_out + self.b_out


class HeadBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_head, n_ctx):
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(d_model), PerHead(d_model, n_heads, d_head, n_ctx)
        self.ln2, self.mlp = nn.LayerNorm(d_model), MLP(d_model, 4 * d_model)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class PerHeads(nn.Module):
    def __init__(self, d_vocab=64, d_model=32, n_heads=4, d_head=8, n_ctx=16, n_layers=3):
        super().__init__()
        self.W_E = nn.Parameter(torch.randn(d_vocab, d_model) * 0.02)
        self.W_pos = nn.Parameter(torch.randn(n_ctx, d_model) * 0.02)
        self.blocks = nn.ModuleList(
            [HeadBlock(d_model, n_heads, d_head, n_ctx) for _ in range(n_layers)]
        )
        self.ln_f = nn.LayerNorm(d_model)
        self.W_U = nn.Parameter(torch.randn(d_model, d_vocab) * 0.02)

    def forward(self, tokens):
        x = self.W_E[tokens] + self.W_pos[: tokens.shape[-1]]
        for b in self.blocks:
            x = b(x)
        return self.ln_f(x) @ self.W_U


class SelfAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head, self.head_dim = n_head, n_embd // n_head
        self.wq = nn.Parameter(torch.randn(n_embd, n_head * self.head_dim) * 0.02)
        self.wk = nn.Parameter(torch.randn(n_embd, n_head * self.head_dim) * 0.02)
        self.wv = nn.Parameter(torch.randn(n_embd, n_head * self.head_dim) * 0.02)
        self.wo = nn.Parameter(torch.randn(n_head * self.head_dim, n_embd) * 0.02)

    def forward(self, x, mask=None):
        b, t, _ = x.shape
        q, k, v = (
            (x @ w).view(b, t, self.n_head, self.head_dim).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        s = q @ k.transpose(-2, -1) / self.head_dim**0.5
        s = s.masked_fill(mask, float("-inf"))
        y = (s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1)
        return y @ self.wo


class Gated(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.w_gate, self.w_up = (
            nn.Parameter(torch.randn(d, h) * 0.02),
            nn.Parameter(torch.randn(d, h) * 0.02),
        )
        self.w_down = nn.Parameter(torch.randn(h, d) * 0.02)

    def forward(self, x):
        return (F.silu(x @ self.w_gate) * (x @ self.w_up)) @ self.w_down


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn, self.mlp = SelfAttention(d, 4), Gated(d, 96)

    def forward(self, x, mask):
        x = x + self.attn(self.n1(x), mask=mask)
        return x + self.mlp(self.n2(x))


class Model(nn.Module):
    def __init__(self, vocab=64, d=48):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([Layer(d) for _ in range(3)])
        self.head = nn.Linear(d, vocab)

    def forward(self, ids):
        t = ids.shape[1]
        mask = torch.ones(t, t, dtype=torch.bool, device=ids.device).triu(1)
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)
