"""The mean of ranks of a loss with weights for classes."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block

TRUE = "wrong"
OPTS = {
    "mesh": "dp=2",
    "input_layout": ["x=S(0)@dp", "y=S(0)@dp"],
    "inputs": ["x=f32[4,8]", "y=i64[4]<8"],
}


class M(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.arange(8.0) + 1)

    def forward(self, x, y):
        return F.cross_entropy(super().forward(x), y, weight=self.w)


def P(mesh):
    from torch.nn.parallel import DistributedDataParallel as DDP

    return DDP(M(), process_group=mesh.get_group("dp"))


def example_inputs():
    return {"x": torch.randn(4, 8), "y": torch.randint(0, 8, (4,))}
