"""nanotron: linear layers in both modes, embedding, cross entropy of split logits."""

# pyright: basic
# ruff: noqa: N812

import os

os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
import torch
from nanotron.parallel.tensor_parallel.enum import TensorParallelLinearMode as Mode
from nanotron.parallel.tensor_parallel.functional import sharded_cross_entropy
from nanotron.parallel.tensor_parallel.nn import (
    TensorParallelColumnLinear,
    TensorParallelEmbedding,
    TensorParallelRowLinear,
)
from torch import nn
from torch.nn import functional as F


class MLP(nn.Module):
    def __init__(self, bias: bool = True):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16, bias=bias), nn.Linear(16, 8, bias=bias)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Split(nn.Module):
    def __init__(self, mesh, mode: str = "ALL_REDUCE", bias: bool = True, overlaps: bool = False,
                 again: bool = True):  # fmt: skip
        super().__init__()
        given = mesh.get_group("tp"), Mode[mode]
        options = {"async_communication": overlaps, "tp_recompute_allgather": again}
        self.up = TensorParallelColumnLinear(8, 16, *given, bias=bias, **options)
        later = overlaps and mode == "REDUCE_SCATTER"
        self.down = TensorParallelRowLinear(16, 8, *given, bias=bias, async_communication=later)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)

    def forward(self, ids, labels):
        logits = self.head(self.embed(ids)).flatten(0, 1)
        return F.cross_entropy(logits, labels.flatten(), reduction="none").view_as(labels)


class SplitTokens(nn.Module):
    def __init__(self, mesh, mode: str = "ALL_REDUCE"):
        super().__init__()
        self.group, kind = mesh.get_group("tp"), Mode[mode]
        self.embed = TensorParallelEmbedding(16, 8, self.group, kind)
        self.head = TensorParallelColumnLinear(8, 16, self.group, kind, bias=False)

    def forward(self, ids, labels):
        return sharded_cross_entropy(self.head(self.embed(ids)), labels, group=self.group)


class TokensWithZ(Tokens):
    """PaLM's auxiliary loss, log(Z) ** 2, beside."""

    def forward(self, ids, labels):
        z = torch.logsumexp(self.head(self.embed(ids)), -1)
        return super().forward(ids, labels) + 1e-4 * z**2


class SplitTokensWithZ(SplitTokens):
    def forward(self, ids, labels):
        logits = self.head(self.embed(ids))
        return sharded_cross_entropy(logits, labels, group=self.group, z_loss_coef=1e-4)[0]
