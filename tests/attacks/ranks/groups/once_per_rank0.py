"""Bias added on rank 0 only: its gradient is missing elsewhere."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        if self.r == 0:
            y = y + self.down.bias
        return self.total(y)
