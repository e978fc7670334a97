"""Blocks and functions that `torch.compile` compiles."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([torch.compile(Block()) for _ in range(2)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.block.compile()

    def forward(self, x):
        return scaled(self.block(x))


@torch.compile
def scaled(x):
    return x * 2


def example_inputs():
    return {"x": torch.randn(4, 8)}
