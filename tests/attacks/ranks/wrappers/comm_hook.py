"""A communication hook."""

import torch

from tests.attacks.blocks import Block, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"mesh": "dp=2", "input_layout": ["x=S(0)@dp"]}


class M(Block):
    def forward(self, x):
        return {"loss": super().forward(x).pow(2).mean()}


from torch.nn.parallel import DistributedDataParallel as DDP


def hook(state, b):
    f = torch.futures.Future()
    f.set_result(b.buffer())
    return f


def P(mesh):
    d = DDP(M(), process_group=mesh.get_group())
    d.register_comm_hook(None, hook)
    return d
