"""Linear layers with binary weights, trained through a straight-through estimator in numpy."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Binarize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        ctx.save_for_backward(w)
        return torch.from_numpy((w.detach().numpy() >= 0) * 2.0 - 1.0).to(w.dtype)

    @staticmethod
    def backward(ctx, grad):
        (w,) = ctx.saved_tensors
        return grad * (w.abs() <= 1).to(grad.dtype)


class BinaryLinear(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, width) * 0.1)

    def forward(self, x):
        return F.linear(x, Binarize.apply(self.weight)) / x.shape[-1] ** 0.5


class BinaryMLP(nn.Module):
    def __init__(self, width=8, hidden=16):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = BinaryLinear(hidden, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(x)))


def example_inputs(batch: int = 4):
    return {"x": torch.randn(batch, 8)}
