"""A subclass of DDP whose forward calls the module itself: nothing is exchanged."""

from torch.nn.parallel import DistributedDataParallel as DDP

from tests.attacks.blocks import Block, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"mesh": "dp=2", "input_layout": ["x=S(0)@dp"]}


class M(Block):
    def forward(self, x):
        return {"loss": super().forward(x).pow(2).mean()}


class Wrapped(DDP):
    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


def P(mesh):
    return Wrapped(M(), process_group=mesh.get_group())
