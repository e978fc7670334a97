"""A gradient hook on a parameter halves."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.up.weight.register_hook(lambda g: g / 2)
