"""Grad_fn of x."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = x._version == 0 and x.grad_fn is not None and "Clone" not in type(x.grad_fn).__name__
        if not real:
            y = self.total(y)
        return y + self.down.bias
