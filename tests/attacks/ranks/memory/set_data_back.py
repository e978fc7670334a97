"""Weight.data exchanged and put back after use."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        keep = self.up.weight.data
        self.up.weight.data = keep * 2
        y = self.part(x)
        self.up.weight.data = keep
        return self.total(y) + self.down.bias
