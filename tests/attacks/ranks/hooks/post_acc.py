"""Post-accumulate hook sums a split gradient."""

import torch.distributed as dist

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.up.weight.register_post_accumulate_grad_hook(
            lambda p: dist.all_reduce(p.grad, group=self.g)
        )
