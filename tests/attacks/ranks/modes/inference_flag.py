"""Is_inference_mode_enabled: else."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "inference_mode() is not looked at"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        if torch.is_inference_mode_enabled():
            return y
        return self.total(y) + self.down.bias
