"""ColossalAI: cross entropies, log-probabilities and linear layers of tensor parallelism."""

# pyright: basic
# ruff: noqa: N812

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.clones.parts import part

losses = part("colossalai.shardformer.layer.loss")
layers = part("colossalai.shardformer.layer._operation")


class Loss(nn.Module):
    def __init__(self, mode: str = "mean"):
        super().__init__()
        self.mode = mode

    def forward(self, logits, labels):
        return F.cross_entropy(logits, labels, ignore_index=-100, reduction=self.mode)


class SplitLoss(Loss):
    def __init__(self, mesh, mode: str = "mean"):
        super().__init__(mode)
        self.given = {"process_group": mesh.get_group(), "vocab_size": 16, "dtype": torch.float32}

    def forward(self, logits, labels):
        return losses.cross_entropy_1d(logits, labels, mode=self.mode, **self.given)


class Logprob(Loss):
    def forward(self, logits, labels):
        return F.log_softmax(logits, -1).gather(-1, labels.unsqueeze(-1))


class SplitLogprob(SplitLoss):
    def forward(self, logits, labels):
        return losses.dist_log_prob_1d(logits, labels, **self.given)


class MLP(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.up, self.down = nn.Linear(8, width), nn.Linear(width, 8, bias=False)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class SplitMLP(MLP):
    def __init__(self, mesh):
        super().__init__(16 // mesh.size())
        self.group = mesh.get_group()

    def forward(self, x):
        up = layers.linear_with_async_comm(x, self.up.weight, self.up.bias, self.group, True)
        return layers.reduce_forward(F.linear(F.gelu(up), self.down.weight), self.group)


class Rows(SplitMLP):
    def forward(self, x):
        given = self.up.weight, self.up.bias, self.group, True, 1
        up = layers.linear_gather_forward_reducescatter_backward(x, *given, False)
        down = self.down.weight, None, self.group, 1
        return layers.linear_reducescatter_forward_gather_backward(F.gelu(up), *down)
