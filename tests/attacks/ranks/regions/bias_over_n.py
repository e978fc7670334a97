"""Bias over n on every rank before the sum (its gradient is over n)."""

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "right"

M = Block


class P(Split):
    def forward(self, x):
        return self.total(self.part(x) + ToRanks.apply(self.down.bias / self.n, self.g))
