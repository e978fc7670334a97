"""Data of a parameter is set to a copy of it."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"
OPTS = {"run": False}

M = Block


class P(Split):
    def forward(self, x):
        self.up.weight.data = self.up.weight.data.clone()
        y = self.total(self.part(x))
        return y + self.down.bias
