"""The model clips its weights in each training call (as a critic does); the parallel one."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def forward(self, x):
        if self.training:
            with torch.no_grad():
                for p in self.parameters():
                    p.clamp_(-0.01, 0.01)
        return super().forward(x)


class P(Split):
    pass
