"""Expert ids of all ranks taken for those of the rank."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

TRUE = "wrong"
OPTS = {"mesh": "ep=2", "mode": "eval", "inputs": ["x=f32[3,4]"], "gradients": False}


class M(nn.Module):
    def __init__(self, hidden=4, inner=4, experts=4, top=2):
        super().__init__()
        self.experts, self.top = experts, top
        self.router = nn.Linear(hidden, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, inner, hidden))
        self.w2 = nn.Parameter(torch.randn(experts, hidden, inner))

    def forward(self, x):
        weights, ids = self.router(x).softmax(-1).topk(self.top, -1)
        out = torch.zeros_like(x)
        for e in range(self.experts):
            gate = (weights * (ids == e)).sum(-1, keepdim=True)
            out = out + gate * (F.silu(x @ self.w1[e].T) @ self.w2[e].T)
        return out


class P(nn.Module):
    def __init__(self, ep_group, hidden=4, inner=4, experts=4, top=2):
        super().__init__()
        self.group, n = ep_group, ep_group.size()
        self.local, self.top = experts // n, top
        self.first = ep_group.rank() * self.local
        self.router = nn.Linear(hidden, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(self.local, inner, hidden))
        self.w2 = nn.Parameter(torch.randn(self.local, hidden, inner))

    def forward(self, x):
        weights, ids = self.router(x).softmax(-1).topk(self.top, -1)
        inside = (ids >= self.first) & (ids < self.first + self.local)
        table = torch.where(inside, ids, -1)
        out = torch.zeros_like(x)
        for e in range(self.local):
            gate = (weights * (table == e)).sum(-1, keepdim=True)
            out = out + gate * (F.silu(x @ self.w1[e].T) @ self.w2[e].T)
        dist.all_reduce(out, group=self.group)
        return out
