"""Projections of attention that are fused in one linear, queries of more heads than keys and values."""

import torch
import torch.nn.functional as F
from torch import nn


class GroupedAttention(nn.Module):
    def __init__(self, dim, n_head, n_local_heads):
        super().__init__()
        self.head_dim = dim // n_head
        total = (n_head + 2 * n_local_heads) * self.head_dim
        self.wqkv = nn.Linear(dim, total, bias=True)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.n_head, self.n_local_heads, self.dim = n_head, n_local_heads, dim

    def forward(self, x):
        bsz, seqlen, _ = x.shape
        kv_size = self.n_local_heads * self.head_dim
        q, k, v = self.wqkv(x).split([self.dim, kv_size, kv_size], dim=-1)
        q = q.view(bsz, seqlen, self.n_head, self.head_dim)
        k = k.view(bsz, seqlen, self.n_local_heads, self.head_dim)
        v = v.view(bsz, seqlen, self.n_local_heads, self.head_dim)
        q, k, v = map(lambda t: t.transpose(1, 2), (q, k, v))
        k = k.repeat_interleave(self.n_head // self.n_local_heads, dim=1)
        v = v.repeat_interleave(self.n_head // self.n_local_heads, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(bsz, seqlen, self.dim)
        return self.wo(y)


class FeedForward(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.w1, self.w3 = nn.Linear(dim, inner, bias=False), nn.Linear(dim, inner, bias=False)
        self.w2 = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attention, self.feed_forward = GroupedAttention(dim, 8, 4), FeedForward(dim, 64)
        self.ffn_norm, self.attention_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)

    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.feed_forward(self.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(self, vocab=64, dim=64, n_layer=3):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Block(dim) for _ in range(n_layer))
        self.norm, self.output = nn.RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, idx):
        x = self.tok_embeddings(idx)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


class Parallel(nn.Module):
    def __init__(self, dim, dim_head=8, heads=4, ff_mult=2):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        attn_inner, ff_inner = dim_head * heads, dim * ff_mult
        self.fused_dims = (attn_inner, dim_head, dim_head, ff_inner * 2)
        self.heads, self.scale = heads, dim_head**-0.5
        self.fused_attn_ff_proj = nn.Linear(dim, sum(self.fused_dims), bias=False)
        self.attn_out = nn.Linear(attn_inner, dim, bias=False)
        self.ff_out = nn.Linear(ff_inner, dim, bias=False)

    def forward(self, x):
        n = x.shape[1]
        x = self.norm(x)
        q, k, v, ff = self.fused_attn_ff_proj(x).split(self.fused_dims, dim=-1)
        q = q.view(*q.shape[:2], self.heads, -1).transpose(1, 2) * self.scale
        sim = torch.einsum("b h i d, b j d -> b h i j", q, k)
        mask = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        attn = sim.masked_fill(mask, -torch.finfo(sim.dtype).max).softmax(-1)
        out = torch.einsum("b h i j, b j d -> b h i d", attn, v)
        out = out.transpose(1, 2).flatten(2)
        a, g = ff.chunk(2, dim=-1)
        return self.attn_out(out) + self.ff_out(F.silu(g) * a)


class PaLM(nn.Module):
    def __init__(self, vocab=64, dim=32, depth=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Parallel(dim) for _ in range(depth)])
        self.norm, self.logits = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = x + b(x)
        return self.logits(self.norm(x))


class SelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_heads, self.num_kv = config["heads"], config["kv"]
        self.d = config["hidden"] // self.num_heads
        self.q_len, self.kv_len = self.num_heads * self.d, self.num_kv * self.d
        self.proj = nn.Linear(config["hidden"], self.q_len + 2 * self.kv_len)
        self.out = nn.Linear(self.q_len, config["hidden"])

    def forward(self, x):
        b, t, _ = x.size()
        qkv = self.proj(x)
        q = qkv[..., : self.q_len].view(b, t, self.num_heads, self.d).transpose(1, 2)
        k = (
            qkv[..., self.q_len : self.q_len + self.kv_len]
            .view(b, t, self.num_kv, self.d)
            .transpose(1, 2)
        )
        v = qkv[..., self.q_len + self.kv_len :].view(b, t, self.num_kv, self.d).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(b, t, self.q_len))


class Sliced(nn.Module):
    def __init__(self):
        super().__init__()
        config = {"heads": 4, "kv": 2, "hidden": 32}
        self.wte = nn.Embedding(64, 32)
        self.h = nn.ModuleList([SelfAttention(config) for _ in range(3)])
        self.ln = nn.ModuleList([nn.LayerNorm(32) for _ in range(3)])
        self.fc = nn.ModuleList(
            [nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(3)]
        )
        self.head = nn.Linear(32, 64)

    def forward(self, ids):
        x = self.wte(ids)
        for h, ln, fc in zip(self.h, self.ln, self.fc, strict=True):
            x = x + h(ln(x))
            x = x + fc(x)
        return self.head(x)
