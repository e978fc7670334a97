"""NeMo-RL: log-probabilities and cross entropies of split logits, sums over ranks."""

# pyright: basic
# ruff: noqa: N812

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.clones.parts import part

ranks = part("nemo_rl.distributed.model_utils")


class Logprob(nn.Module):
    def __init__(self, kind: str = "", extra=()):
        super().__init__()

    def forward(self, logits, target):
        return F.log_softmax(logits, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1)


class Split(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.group = mesh.get_group()


class SplitLogprob(Split):
    def __init__(self, mesh, kind: str = "DistributedLogprob", extra=()):
        super().__init__(mesh)
        self.function, self.extra = getattr(ranks, kind), extra

    def forward(self, logits, target):
        n, rank = logits.shape[-1], torch.distributed.get_rank(self.group)
        bounds = rank * n, (rank + 1) * n
        return self.function.apply(logits, target, *bounds, *self.extra, self.group)


class Chosen(Logprob):
    def forward(self, logits, target):
        return F.log_softmax(logits, -1).gather(-1, target)


class SplitSampling(Split):
    def forward(self, logits, target):
        return ranks.DistributedLogprobWithSampling.apply(logits, target, self.group, None, 1.0)


class Cross(nn.Module):
    def forward(self, student, teacher):
        p = F.softmax(teacher.detach(), -1)
        return -(p * F.log_softmax(student, -1)).sum(-1)


class SplitCross(Split):
    def forward(self, student, teacher):
        return ranks.DistributedCrossEntropy.apply(student, teacher, self.group)


class Soft(nn.Module):
    def forward(self, logits):
        return F.log_softmax(logits / 0.7, -1)


class SplitSoft(Split):
    def forward(self, logits):
        return ranks.vocab_parallel_log_softmax(logits, 0.7, tp_group=self.group)


class Columns(nn.Module):
    def forward(self, logits, columns):
        return logits[..., columns].float()


class SplitColumns(Split):
    def forward(self, logits, columns):
        return ranks.vocab_parallel_gather_columns(logits, columns, tp_group=self.group)


class Argmax(nn.Module):
    def forward(self, logits):
        return logits.argmax(-1)


class SplitArgmax(Split):
    def forward(self, logits):
        return ranks.vocab_parallel_argmax(logits, tp_group=self.group)


class Mean(nn.Module):
    def forward(self, x, mask):
        return (x * mask).sum() / mask.sum()


class SplitMean(Split):
    def forward(self, x, mask):
        top = ranks.group_all_reduce_sum_with_grad((x * mask).sum(), self.group)
        return top / ranks.group_all_reduce_sum(mask.sum(), self.group)
