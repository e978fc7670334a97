"""Integers times and divided by fractions."""

import torch

from tests.attacks.blocks import Block, Split

TRUE = "right"
OPTS = {"inputs": ["x=f32[4,8]", "pos=i64[4]<10"]}


class M(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.zeros(8, dtype=torch.long))

    def forward(self, x, pos):
        return (
            super().forward(x) * (self.b / 4)
            + (pos * 0.5)[:, None]
            + 0.5 * pos[:, None]
            + (1.5 - pos)[:, None]
            + pos[:, None] / 3
            + 0.5
        )


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.register_buffer("b", torch.zeros(8, dtype=torch.long))

    def forward(self, x, pos):
        return (
            super().forward(x) * (self.b / 4)
            + (pos * 0.5)[:, None]
            + 0.5 * pos[:, None]
            + (1.5 - pos)[:, None]
            + pos[:, None] / 3
            + 0.5
        )
