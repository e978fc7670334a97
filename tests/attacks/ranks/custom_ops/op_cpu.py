"""A custom op whose CPU kernel is another."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


@torch.library.custom_op("b2::twice", mutates_args=(), device_types="cuda")
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_kernel("cpu")
def _(x):
    return x * 3


twice.register_fake(lambda x: torch.empty_like(x))
twice.register_autograd(lambda ctx, g: g * 2)


class M(Block):
    def forward(self, x):
        return super().forward(x) * 2


class P(Split):
    def forward(self, x):
        return twice(self.total(self.part(x)) + self.down.bias)
