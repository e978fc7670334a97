"""Layers are left out once the batch is calm enough."""

import torch
import torch.nn as nn


class EarlyExit(nn.Module):
    def __init__(self, width=8, layers=3, calm=1.0):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.calm = calm

    def forward(self, x):
        for layer in self.layers:
            if x.abs().mean() < self.calm:
                break
            x = x * 0.5 + torch.tanh(layer(x))
        return x


def example_inputs(batch: int = 4):
    return {"x": torch.randn(batch, 8)}
