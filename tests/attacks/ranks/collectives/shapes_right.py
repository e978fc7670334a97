"""Ranks reduce tensors of unlike shapes, which lie in memory alike."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"
M = Block


class P(Split):
    def total(self, y):
        return super().total(y.reshape(2, 16) if self.r else y).reshape(4, 8)
