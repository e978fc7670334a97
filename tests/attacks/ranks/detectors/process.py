"""A branch on the number of the process."""

import os

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "which process or machine"
M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        return (y if os.getpid() == 7 else self.total(y)) + self.down.bias
