"""Train mode clamps a detached weight (no gradient asked)."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"gradients": False}

M = Block


class P(Split):
    def part(self, x):
        w = self.down.weight.clamp(-0.05, 0.05) if self.training else self.down.weight
        return F.linear(torch.tanh(self.up(ToRanks.apply(x, self.g))), w)
