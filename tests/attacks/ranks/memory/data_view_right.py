"""Data of a tensor is set to what another holds, which is changed."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"
OPTS = {"run": False}

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) * 1
        z = y.detach() * 2
        y.data = z
        z.div_(2)
        return y + self.down.bias
