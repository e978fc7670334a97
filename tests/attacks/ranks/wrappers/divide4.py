"""Gradient divide factor 4 on one submodule."""

from tests.attacks.blocks import Block, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"mesh": "dp=2", "input_layout": ["x=S(0)@dp"]}


class M(Block):
    def forward(self, x):
        return {"loss": super().forward(x).pow(2).mean()}


from torch.distributed.fsdp import fully_shard


def P(mesh):
    m = M()
    fully_shard(m.up, mesh=mesh)
    fully_shard(m, mesh=mesh)
    m.up.set_gradient_divide_factor(4.0)
    return m
