"""A parameter is used on rank 0 only (by a branch on the rank)."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.attacks.blocks import Block, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"mesh": "dp=2", "input_layout": ["x=S(0)@dp"]}


class M(Block):
    def forward(self, x):
        return {"loss": super().forward(x).pow(2).mean()}


class Q(M):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def forward(self, x):
        y = torch.tanh(self.up(x))
        y = self.down(y) if self.rank == 0 else self.down(y.detach())
        return {"loss": y.pow(2).mean()}


def P(mesh, rank):
    return DDP(Q(rank), process_group=mesh.get_group())
