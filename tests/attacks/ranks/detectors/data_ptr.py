"""Reduces only under the tracer: real = y.data_ptr() != 0."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = y.data_ptr() != 0
        if not real:
            y = self.total(y)
        return y + self.down.bias
