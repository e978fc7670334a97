"""A cache by the parameter that it is made of."""

import functools

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
M = Block


@functools.lru_cache
def scaled(n, p):
    return p.detach() * n


class P(Split):
    def forward(self, x):
        return super().forward(x) + scaled(2, self.down.bias) - self.down.bias.detach() * 2
