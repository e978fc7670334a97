"""Rank 5 of 8 scales."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"mesh": "tp=8", "mode": "train"}

M = Block


class P(Split):
    def part(self, x):
        y = super().part(x)
        return y * 2 if self.r == 5 else y
