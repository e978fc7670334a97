"""Saved tensors are scaled when unpacked."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def part(self, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 2):
            return super().part(x)
