"""A thread computes, and is waited for."""

import threading

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"
OPTS = {"run": False}

M = Block


class P(Split):
    def forward(self, x):
        found = []
        y = self.part(x)
        thread = threading.Thread(target=lambda: found.append(y * 1))
        thread.start()
        thread.join()
        return self.total(found[0]) + self.down.bias
