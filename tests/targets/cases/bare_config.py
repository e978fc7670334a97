"""A config of no stated class, as nanoGPT has it, and a class that reads its settings off one."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Sizes:
    width: int = 16
    layers: int = 2


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def example_inputs():
    return {"x": torch.zeros(4, 16)}
