"""Bfloat16 autocast (rounding)."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"

M = Block


class P(Split):
    def part(self, x):
        with torch.autocast("cpu", enabled=False):
            return super().part(x)
