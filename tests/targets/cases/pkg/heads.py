"""A member of a package whose attention lies in another one."""

import torch
from torch import nn

from .attention import Attention


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Attention()

    def forward(self, x):
        return x + self.attn(x)


def example_inputs():
    return {"x": torch.randn(2, 8, 32)}
