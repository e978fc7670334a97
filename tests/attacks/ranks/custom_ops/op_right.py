"""A custom op with a body."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"


@torch.library.custom_op("b1::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(lambda x: torch.empty_like(x))
twice.register_autograd(lambda ctx, g: g * 2)


class M(Block):
    def forward(self, x):
        return super().forward(x) * 2


class P(Split):
    def forward(self, x):
        return twice(self.total(self.part(x)) + self.down.bias)
