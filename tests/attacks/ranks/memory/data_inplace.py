"""Y.data.mul_."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        y.data.mul_(2)
        return y
