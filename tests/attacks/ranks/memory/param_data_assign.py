"""Up.weight.data = ... in forward."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        self.up.weight.data = self.up.weight.data * 1.5
        return self.total(self.part(x)) + self.down.bias
