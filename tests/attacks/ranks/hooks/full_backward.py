"""Full backward hook on a submodule."""

import torch.nn.functional as F
from torch import nn

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.act = nn.Tanh()
        self.act.register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))

    def part(self, x):
        return F.linear(self.act(self.up(ToRanks.apply(x, self.g))), self.down.weight)
