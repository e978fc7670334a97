"""A list of layers in which some places are empty: `nn.ModuleList([layer, None])`."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d: int, last: bool):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.parts = nn.ModuleList(
            [mlp, nn.Sequential(nn.LayerNorm(d), nn.Identity()) if last else None]
        )

    def forward(self, x):
        mlp, after = self.parts
        x = x + mlp(self.norm(x))
        return x if after is None else after(x)


class Net(nn.Module):
    def __init__(self, d: int = 32):
        super().__init__()
        self.layers = nn.ModuleList(Block(d, i == 1) for i in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def example_inputs():
    return {"x": torch.randn(4, 8, 32)}
