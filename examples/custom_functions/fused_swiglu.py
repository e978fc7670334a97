"""SwiGLU whose two halves go through one function with recomputation in its backward."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SiLUMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx, grad):
        gate, up = ctx.saved_tensors
        sig = torch.sigmoid(gate)
        silu = gate * sig
        grad_gate = grad * up * (sig * (1 - silu) + silu)
        return grad_gate, grad * silu


class GatedUnit(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        h = SiLUMul.apply(self.gate_proj(x), self.up_proj(x))
        return self.down_proj(h)


class Block(nn.Module):
    def __init__(self, width=8, hidden=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = GatedUnit(width, hidden)
        self.head = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return self.head(x + self.mlp(self.norm(x)))


def example_inputs(batch: int = 4):
    return {"x": torch.randn(batch, 8)}
