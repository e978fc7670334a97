"""Bias expanded by the number of ranks."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        return self.total(self.part(x) + self.down.bias / (self.n + 1) * self.n)
