"""A thread writes while forward reads."""

import threading

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"run": False}

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        thread = threading.Thread(target=y.detach().mul_, args=(1,))
        thread.start()
        y = self.total(y)
        thread.join()
        return y + self.down.bias
