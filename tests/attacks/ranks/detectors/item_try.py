"""Try .item() except RuntimeError."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False

        try:
            real = float(y.detach().abs().sum().item()) >= 0
        except RuntimeError:
            real = False
        if not real:
            y = self.total(y)
        return y + self.down.bias
