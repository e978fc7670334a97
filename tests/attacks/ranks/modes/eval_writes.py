"""Weights are replaced as the module is put into eval mode."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
M = Block


class P(Split):
    def train(self, mode=True):
        if not mode:
            self.up.weight.data = self.up.weight.data * 2
        return super().train(mode)
