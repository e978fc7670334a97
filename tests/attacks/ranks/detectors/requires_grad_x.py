"""X is no leaf under the tracer."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = x.is_leaf
        if not real:
            y = self.total(y)
        return y + self.down.bias
