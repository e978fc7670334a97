"""Forward hooks that the tracer registers."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = len(self._forward_hooks) == 0
        if not real:
            y = self.total(y)
        return y + self.down.bias
