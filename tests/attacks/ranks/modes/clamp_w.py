"""Train mode clamps a parameter, no word about it."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        w = self.down.weight.clamp(-0.05, 0.05) if self.training else self.down.weight
        h = torch.tanh(self.up(ToRanks.apply(x, self.g)))
        return self.total(F.linear(h, w)) + self.down.bias
