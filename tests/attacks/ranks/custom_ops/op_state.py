"""A custom op whose body keeps a counter."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "what the first two compute"

M = Block

C = []


@torch.library.custom_op("b3::once", mutates_args=())
def once(x: torch.Tensor) -> torch.Tensor:
    C.append(1)
    return x * 1 if len(C) < 12 else x * 2


once.register_fake(lambda x: torch.empty_like(x))
once.register_autograd(lambda ctx, g: g * 1)


class P(Split):
    def forward(self, x):
        return once(self.total(self.part(x)) + self.down.bias)
