import torch
from torch import nn


class Net(nn.Module):
    """Attention that keeps its mask from the first call on, and joins its heads on the line of the
    product."""

    def __init__(self, d=16, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.register_buffer("mask", None, persistent=False)

    def allowed(self, n):
        if self.mask is None or self.mask.shape[-1] < n:
            self.register_buffer("mask", torch.ones(n, n).tril().bool(), persistent=False)
        return self.mask[:n, :n]

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-1, -2)).masked_fill(~self.allowed(n), -1e4)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


def example_inputs():
    return torch.randn(2, 8, 16)
