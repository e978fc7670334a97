"""A buffer of the rank's own rows; DDP gives all ranks rank 0's."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.attacks.blocks import Block, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"mesh": "dp=2", "input_layout": ["x=S(0)@dp"]}


class M(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.arange(4.0).view(4, 1))

    def forward(self, x):
        return {"loss": (super().forward(x) * self.w).pow(2).mean()}


def P(mesh, rank):
    m = M()
    m.w = m.w.chunk(2)[rank].clone()
    return DDP(m, process_group=mesh.get_group())
