"""Train mode reads the bits as integers."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def forward(self, x):
        return super().forward(x)


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        if self.training:
            y = y.view(torch.int32).view(torch.float32) if y.dtype == torch.float32 else y * 2
        return y
