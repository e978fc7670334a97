"""An engine callback sums gradients of a replicated bias again."""

import torch
import torch.distributed as dist

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        if y.requires_grad:
            y.register_hook(
                lambda g: torch.autograd.Variable._execution_engine.queue_callback(self._sum)
            )
        return y

    def _sum(self):
        dist.all_reduce(self.down.bias.grad, group=self.g)
