"""from torch._guards import active_fake_mode as a; real = a() is No."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        from torch._guards import active_fake_mode as a

        real = a() is None
        if not real:
            y = self.total(y)
        return y + self.down.bias
