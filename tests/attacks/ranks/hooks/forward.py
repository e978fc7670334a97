"""A forward hook doubles."""

from torch import nn

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.down2 = nn.Identity()
        self.down2.register_forward_hook(lambda m, a, out: out * 2)

    def forward(self, x):
        return self.down2(self.total(self.part(x))) + self.down.bias
