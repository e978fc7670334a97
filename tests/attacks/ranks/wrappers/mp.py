"""Mixed precision."""

import torch

from tests.attacks.blocks import Block, example_inputs as example_inputs

TRUE = "right"
OPTS = {"mesh": "dp=2", "input_layout": ["x=S(0)@dp"]}


class M(Block):
    def forward(self, x):
        return {"loss": super().forward(x).pow(2).mean()}


from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def P(mesh):
    m = M()
    fully_shard(
        m,
        mesh=mesh,
        mp_policy=MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32),
    )
    return m
