"""Reduces only under the tracer: real = 'size=' not in str(y)."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = "size=" not in str(y)
        if not real:
            y = self.total(y)
        return y + self.down.bias
