"""Weights are doubled as the module is put into a mode."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
M = Block


class P(Split):
    def train(self, mode=True):
        with torch.no_grad():
            self.up.weight.mul_(2)
        return super().train(mode)
