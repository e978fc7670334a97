"""numpy writes into memory that it takes by itself."""

import numpy as np

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"run": False}

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x))
        try:
            np.from_dlpack(y.detach())[...] = 0.5
        except Exception:
            pass
        return y + self.down.bias
