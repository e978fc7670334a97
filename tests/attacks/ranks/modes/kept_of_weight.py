"""A weight is kept from the first call on, without gradients."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, Summed, ToRanks, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "keeps what it makes of parameters"
OPTS = {"gradients": False}


class M(Block):
    pass


class P(Split):
    w = None

    def total(self, y):
        return Summed.apply(y, self.g)

    def part(self, x):
        if self.w is None:
            self.w = self.up.weight.detach() * 1
        h = torch.tanh(F.linear(ToRanks.apply(x, self.g), self.w, self.up.bias))
        return F.linear(h, self.down.weight)
