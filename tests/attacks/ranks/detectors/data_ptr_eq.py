"""real = self.up.weight.data_ptr() != self.down.weight.data_ptr()."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = self.up.weight.data_ptr() != self.down.weight.data_ptr()
        if not real:
            y = self.total(y)
        return y + self.down.bias
