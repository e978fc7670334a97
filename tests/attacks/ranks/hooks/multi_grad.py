"""Multi-grad hook scales .grad afterwards."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        if y.requires_grad:

            def late(grads):
                pass

            y.register_hook(lambda g: self._late())
        return y

    def _late(self):
        torch.autograd.Variable._execution_engine.queue_callback(self._scale)

    def _scale(self):
        self.up.weight.grad.mul_(2)
