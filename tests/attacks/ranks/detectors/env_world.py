"""Torchrun's WORLD_SIZE in the environment."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        import os

        real = "WORLD_SIZE" in os.environ
        if not real:
            y = self.total(y)
        return y + self.down.bias
