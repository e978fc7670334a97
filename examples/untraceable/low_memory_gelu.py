"""GELU (tanh) in numpy, with a backward by hand in which one term was forgotten."""

import math

import numpy as np
import torch
import torch.nn as nn

ROOT = math.sqrt(2 / math.pi)


class LowMemoryGELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        v = x.detach().numpy()
        return torch.from_numpy(0.5 * v * (1 + np.tanh(ROOT * (v + 0.044715 * v**3))))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        t = torch.tanh(ROOT * (x + 0.044715 * x**3))
        return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT)


class Activation(nn.Module):
    def forward(self, x):
        return LowMemoryGELU.apply(x)


class MLP(nn.Module):
    def __init__(self, width=8, hidden=16):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.act = Activation()
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


def example_inputs(batch: int = 4):
    return {"x": torch.randn(batch, 8)}
