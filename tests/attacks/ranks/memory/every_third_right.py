"""Every third line is written."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"
OPTS = {"run": False}

M = Block


class P(Split):
    def forward(self, x):
        x = x * 1
        x[1::3] = x[1::3] * 2 - x[1::3]
        y = self.total(self.part(x))
        return y + self.down.bias
