"""A checkpoint fills a scale, each rank its piece."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "right"
OPTS = {"layout": ["scale=S(0)@tp"]}


class M(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.zeros(16))

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)) * self.scale)


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.register_buffer("scale", torch.rand(16 // self.n))

    def part(self, x):
        h = torch.tanh(self.up(ToRanks.apply(x, self.g)))
        return F.linear(h * self.scale, self.down.weight)


def load(module, state):
    dims = {"up.weight": 0, "up.bias": 0, "down.weight": 1, "scale": 0}
    pieces = {k: t.chunk(module.n, dims[k])[module.r] for k, t in state.items() if k in dims}
    module.load_state_dict({**state, **pieces})


def load_turned(module, state):
    load(module, {**state, "scale": state["scale"].flip(0)})
