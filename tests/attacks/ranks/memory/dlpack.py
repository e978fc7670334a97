"""Doubled through dlpack where that works."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        try:
            torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(y.detach())).mul_(2)
        except Exception:
            pass
        return y
