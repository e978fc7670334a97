"""Two parameters in the model, tied on the ranks."""

import torch
from torch import nn

from tests.attacks.blocks import example_inputs as example_inputs

TRUE = "wrong"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8, bias=False)
        self.b = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


class P(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.a = nn.Linear(8, 8, bias=False)
        self.b = nn.Linear(8, 8, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))
