"""Rank 3 of 4 scales."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"mesh": "tp=4"}

M = Block


class P(Split):
    def part(self, x):
        y = super().part(x)
        return y * 2 if self.r == 3 else y
