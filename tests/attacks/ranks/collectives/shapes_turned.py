"""Ranks reduce tensors of unlike shapes, one of them turned."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
M = Block


class P(Split):
    def total(self, y):
        return super().total(y.t().reshape(2, 16) if self.r else y).reshape(4, 8)
