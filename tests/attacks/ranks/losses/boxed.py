"""A tensor in an object is doubled."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "beside tensors is not compared"


class Box:
    def __init__(self, t):
        self.t = t


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        return y, Box(y)


class P(Split):
    def forward(self, x):
        y = super().forward(x)
        return y, Box(y * 2)
