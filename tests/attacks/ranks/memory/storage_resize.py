"""Storage of a saved activation resized and back."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        h = torch.tanh(self.up(ToRanks.apply(x, self.g)))
        y = F.linear(h, self.down.weight)
        with torch.no_grad():
            s = h.untyped_storage()
            n = s.nbytes()
            s.resize_(0)
            s.resize_(n)
            h.detach().zero_()
        return self.total(y) + self.down.bias
