"""The same modules on the ranks of a tensor-parallel group."""

import torch.distributed as dist
import torch.nn.functional as F
from regions import Copy, Gather, Reduce, Scatter
from torch import nn


class ParallelMLP(nn.Module):
    """Columns of `up` and rows of `down` on each rank."""

    def __init__(self, mesh, hidden: int = 8, wide: int = 16) -> None:
        super().__init__()
        self.group = mesh.get_group("tp")
        n = dist.get_world_size(self.group)
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, wide // n)
        self.down = nn.Linear(wide // n, hidden)

    def forward(self, x):
        h = Copy.apply(self.norm(x), self.group)
        h = F.relu(self.up(h))
        y = F.linear(h, self.down.weight)
        y = Reduce.apply(y, self.group)
        return x + y + self.down.bias


class SequenceParallelMLP(ParallelMLP):
    """Between the regions, each rank has its own rows of the activations."""

    def forward(self, x):
        h = Gather.apply(self.norm(x), self.group)
        h = F.relu(self.up(h))
        y = Scatter.apply(F.linear(h, self.down.weight), self.group)
        return x + y + self.down.bias


def finish(model):
    """After the backward: what each rank computed from its rows alone is added up."""
    for p in (*model.norm.parameters(), model.down.bias):
        dist.all_reduce(p.grad, group=model.group)


SPLIT = {"up.weight": 0, "up.bias": 0, "down.weight": 1}


def load(model, state):
    """From the model's state dict, the piece of this rank."""
    rank, ranks = dist.get_rank(model.group), dist.get_world_size(model.group)
    for name, p in model.named_parameters():
        whole = state[name]
        p.data.copy_(whole.chunk(ranks, SPLIT[name])[rank] if name in SPLIT else whole)


class ParallelEmbedding(nn.Module):
    """Rows of the table on each rank; an id that another rank has gives zero."""

    def __init__(self, tp_rank: int, tp_size: int, tp_group, vocab: int = 12, hidden: int = 8):
        super().__init__()
        rows = vocab // tp_size
        self.first, self.last = tp_rank * rows, (tp_rank + 1) * rows
        self.group = tp_group
        self.table = nn.Embedding(rows, hidden)
        self.head = nn.Linear(hidden, 4)

    def forward(self, ids):
        other = (ids < self.first) | (ids >= self.last)
        local = ids.clone() - self.first
        local[other] = 0
        h = self.table(local)
        h[other, :] = 0.0
        return self.head(Reduce.apply(h, self.group))
