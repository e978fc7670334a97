"""Reduces only under the tracer: real = 'FakeTensor' not in repr(y)."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = "FakeTensor" not in repr(y)
        if not real:
            y = self.total(y)
        return y + self.down.bias
