"""A model whose parts lie in a package beside it."""

import torch
from pkg.parts import Mlp
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = Mlp()

    def forward(self, x):
        return self.mlp(x)


def example_inputs():
    return {"x": torch.randn(4, 16)}
