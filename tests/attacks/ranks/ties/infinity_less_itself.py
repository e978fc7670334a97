"""An infinity less itself."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "No infinity is multiplied by 0"
M = Block


class P(Split):
    def forward(self, x):
        y = super().forward(x)
        t = y.detach().masked_fill(y > 0, float("inf"))
        return y + (t - t)
