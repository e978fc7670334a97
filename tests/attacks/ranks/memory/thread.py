"""The result is doubled in a thread."""

import threading

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
M = Block


class P(Split):
    def forward(self, x):
        y = super().forward(x)

        def more():
            with torch.no_grad():
                y.mul_(2)

        t = threading.Thread(target=more)
        t.start()
        t.join()
        return y
