"""Models that say nothing about parallelism: a small one like Llama, with a tied table, and
torchtitan's."""

# pyright: basic, reportMissingImports=false

from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional


@dataclass
class Config:
    dim: int = 32
    layers: int = 2
    heads: int = 4
    vocab: int = 64
    hidden: int = 64


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.q, self.k, self.v, self.o = (
            nn.Linear(config.dim, config.dim, bias=False) for _ in range(4)
        )

    def forward(self, x):
        batch, seq, _ = x.shape
        q, k, v = (
            made(x).view(batch, seq, self.heads, -1).transpose(1, 2)
            for made in (self.q, self.k, self.v)
        )
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(batch, seq, -1))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.dim, config.hidden)
        self.down = nn.Linear(config.hidden, config.dim)

    def forward(self, x):
        return self.down(functional.silu(self.up(x)))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(config.dim), nn.RMSNorm(config.dim)])
        self.attention, self.mlp = Attention(config), MLP(config)

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class TitanLlama(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.dim)
        self.layers = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = nn.RMSNorm(config.dim)
        self.output = nn.Linear(config.dim, config.vocab, bias=False)
        self.output.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def llama3():
    """torchtitan's own, of the sizes of its debug model."""
    from torchtitan.models.llama3 import llama3_args
    from torchtitan.models.llama3.model.model import Transformer

    return Transformer(replace(llama3_args["debugmodel"], max_seq_len=8))


def example_inputs():
    return {"tokens": torch.randint(0, 64, (4, 8))}
