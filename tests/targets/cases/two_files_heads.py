"""Attention in a second file, with the number of heads in its view."""

import torch
from heads_parts import Attention
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Attention()

    def forward(self, x):
        return x + self.attn(x)


def example_inputs():
    return {"x": torch.randn(2, 8, 32)}
