"""Reduces only under the tracer: real = y.untyped_storage().device.type != 'meta'."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = y.untyped_storage().device.type != "meta"
        if not real:
            y = self.total(y)
        return y + self.down.bias
