"""Checkpointed, reentrant."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"

M = Block


class P(Split):
    def part(self, x):
        import torch.utils.checkpoint as cp

        return cp.checkpoint(super().part, x, use_reentrant=True)
