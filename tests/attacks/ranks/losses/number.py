"""The number of rows is the rank's."""

import torch.distributed as dist

from tests.attacks.blocks import Block, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "beside tensors is not compared"
OPTS = {
    "mesh": "dp=2",
    "input_layout": ["x=S(0)@dp"],
    "output_layout": ["*=S(0)@dp"],
    "after_backward": "finish",
}


class M(Block):
    def forward(self, x):
        return super().forward(x), x.shape[0]


class P(Block):
    def __init__(self, mesh):
        super().__init__()
        self.g = [mesh.get_group("dp")]

    def forward(self, x):
        return super().forward(x), x.shape[0]


def finish(m):
    for p in m.parameters():
        dist.all_reduce(p.grad, group=m.g[0])
