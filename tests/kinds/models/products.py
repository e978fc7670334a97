"""Modules that multiply by a weight of their own, in code of their own."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Masked(nn.Linear):
    """A product with some of the weights."""

    def __init__(self, d, wide):
        super().__init__(d, wide)
        self.register_buffer("mask", (torch.arange(wide)[:, None] >= torch.arange(d)).float())

    def forward(self, x):
        return F.linear(x, self.weight * self.mask, self.bias)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up, self.down = Masked(d, 2 * d), Masked(2 * d, d)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Sine(nn.Module):
    """A product, and what follows it, in one module; its weight is [in, out]."""

    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d, d) / d)
        self.bias = nn.Parameter(torch.zeros(d))

    def forward(self, x):
        return torch.sin(x @ (self.weight * 3) + self.bias)


class Products(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))
        self.waves = nn.ModuleList(Sine(d) for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        for wave in self.waves:
            x = wave(x)
        return x


def example_inputs():
    return torch.randn(4, 16)
