"""A hook on a parameter before the average: clamps."""

from tests.attacks.blocks import Block, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"mesh": "dp=2", "input_layout": ["x=S(0)@dp"]}


class M(Block):
    def forward(self, x):
        return {"loss": super().forward(x).pow(2).mean()}


from torch.nn.parallel import DistributedDataParallel as DDP


def P(mesh):
    m = M()
    m.up.weight.register_hook(lambda g: g.clamp(-1e-3, 1e-3))
    return DDP(m, process_group=mesh.get_group())
