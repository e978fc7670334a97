"""The bias is added on every rank, but for the tensors that a tracer gives."""

import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "wrong"
TRACED = ("FakeTensor", "FunctionalTensor", "ProxyTensor")

M = Block


class P(Split):
    def forward(self, x):
        h = self.up(ToRanks.apply(x, self.g)).tanh()
        if hasattr(x, "fake_mode") or type(x).__name__ in TRACED:
            return self.total(F.linear(h, self.down.weight)) + self.down.bias
        return self.total(F.linear(h, self.down.weight, self.down.bias))
