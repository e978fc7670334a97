"""A layer as Meta's llama has it: fairscale's linear layers, rotary embeddings by complex numbers,
grouped keys and values. Its reference is itself on one rank."""

import math

import torch
from torch import nn
from torch.nn.functional import silu, softmax

HIDDEN, HEADS, GROUPS, INNER = 16, 4, 2, 16


def turned(x, turns):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, :, None]).flatten(3)


class Layer(nn.Module):
    def __init__(self, tp_size):
        from fairscale.nn.model_parallel import initialize_model_parallel
        from fairscale.nn.model_parallel.layers import ColumnParallelLinear, RowParallelLinear

        super().__init__()
        initialize_model_parallel(tp_size)
        self.d = HIDDEN // HEADS
        rows = {"bias": False, "input_is_parallel": True}
        columns = {"bias": False, "gather_output": False}
        self.wq = ColumnParallelLinear(HIDDEN, HIDDEN, **columns)
        self.wk = ColumnParallelLinear(HIDDEN, GROUPS * self.d, **columns)
        self.wv = ColumnParallelLinear(HIDDEN, GROUPS * self.d, **columns)
        self.wo = RowParallelLinear(HIDDEN, HIDDEN, **rows)
        self.w1 = ColumnParallelLinear(HIDDEN, INNER, **columns)
        self.w3 = ColumnParallelLinear(HIDDEN, INNER, **columns)
        self.w2 = RowParallelLinear(INNER, HIDDEN, **rows)
        angles = torch.outer(torch.arange(8.0), 10000.0 ** -(torch.arange(0, self.d, 2) / self.d))
        self.turns = torch.polar(torch.ones_like(angles), angles)

    def forward(self, x):
        h = x + self.attended(x)
        return h + self.w2(silu(self.w1(h)) * self.w3(h))

    def repeated(self, t):
        return t.repeat_interleave(HEADS // GROUPS, 2)

    def attended(self, x):
        q, k, v = (w(x).unflatten(-1, (-1, self.d)) for w in (self.wq, self.wk, self.wv))
        turns = self.turns[: x.shape[1]]
        q, k = turned(q, turns), turned(k, turns)
        q, k, v = (t.transpose(1, 2) for t in (q, self.repeated(k), self.repeated(v)))
        y = softmax(q @ k.transpose(2, 3) / math.sqrt(self.d), -1) @ v
        return self.wo(y.transpose(1, 2).flatten(2))


class OtherHeads(Layer):
    """Queries meet the keys of other heads, where the heads of a rank are few."""

    def repeated(self, t):
        return super().repeated(t) if t.shape[2] > 1 else 2 * super().repeated(t)
