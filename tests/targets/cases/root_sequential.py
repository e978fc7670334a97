"""A model that is a Sequential of alike blocks."""

import torch
from torch import nn


def block():
    return nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))


def stacked(depth=3):
    return nn.Sequential(*[block() for _ in range(depth)])


def example_inputs():
    return {"input": torch.zeros(4, 16)}
