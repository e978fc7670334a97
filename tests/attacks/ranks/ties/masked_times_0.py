"""Masked entries times 0."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "No infinity is multiplied by 0"


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        return y.masked_fill(y > 0, 0.0).sum(-1)


class P(Split):
    def forward(self, x):
        y = super().forward(x)
        t = y.masked_fill(y > 0, float("-inf"))
        return (t * (y <= 0)).sum(-1)
