"""Require_backward_grad_sync = False."""

from tests.attacks.blocks import Block, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"mesh": "dp=2", "input_layout": ["x=S(0)@dp"]}


class M(Block):
    def forward(self, x):
        return {"loss": super().forward(x).pow(2).mean()}


from torch.nn.parallel import DistributedDataParallel as DDP


def P(mesh):
    d = DDP(M(), process_group=mesh.get_group())
    d.require_backward_grad_sync = False
    return d
