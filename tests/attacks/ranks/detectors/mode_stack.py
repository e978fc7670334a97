"""from torch.utils._python_dispatch import _get_current_dispatch_mo."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        from torch.utils._python_dispatch import _get_current_dispatch_mode as g

        real = g() is None
        if not real:
            y = self.total(y)
        return y + self.down.bias
