"""A byte of a typed storage is set."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        try:
            y.detach().storage()[0] = 3.0
        except Exception:
            pass
        return y
