"""from torch._subclasses import FakeTensor; real = not isinstance(y."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        from torch._subclasses import FakeTensor

        real = not isinstance(y, FakeTensor)
        if not real:
            y = self.total(y)
        return y + self.down.bias
