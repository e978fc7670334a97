"""The storage is overwritten, no op."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        z = (y * 2).detach()
        y.untyped_storage().copy_(z.untyped_storage())
        return y
