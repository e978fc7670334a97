"""Attention with a scaled, causally masked softmax as one function, as training stacks have it."""

import math

import torch
import torch.nn as nn


class ScaledCausalSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, scale):
        size = scores.shape[-1]
        future = torch.ones(size, size, dtype=torch.bool, device=scores.device).triu(1)
        probs = torch.softmax((scores * scale).masked_fill(future, -10000.0), dim=-1)
        ctx.save_for_backward(probs)
        ctx.scale = scale
        return probs

    @staticmethod
    def backward(ctx, grad):
        (probs,) = ctx.saved_tensors
        inner = (grad * probs).sum(-1, keepdim=True)
        return ctx.scale * probs * (grad - inner), None


class MaskedSoftmax(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, scores):
        return ScaledCausalSoftmax.apply(scores, self.scale)


class Attention(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.softmax = MaskedSoftmax(1 / math.sqrt(width // heads))

    def split(self, x):
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        probs = self.softmax(q @ k.transpose(-1, -2))
        mixed = (probs @ v).transpose(1, 2).reshape(x.shape)
        return x + self.out(mixed)


def example_inputs(batch: int = 2):
    return {"x": torch.randn(batch, 5, 8)}
