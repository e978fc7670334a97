"""Reduces only under the tracer: import sys; real = 'synthesis' not in sys.modules."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        import sys

        real = "synthesis" not in sys.modules
        if not real:
            y = self.total(y)
        return y + self.down.bias
