"""real = y.untyped_storage().data_ptr() != self.down.weight.untyped."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = y.untyped_storage().data_ptr() != self.down.weight.untyped_storage().data_ptr()
        if not real:
            y = self.total(y)
        return y + self.down.bias
