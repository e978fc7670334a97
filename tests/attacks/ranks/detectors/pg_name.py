"""real = 'Fake' not in type(dist.distributed_c10d._get_default_grou."""

import torch.distributed as dist

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        real = "Fake" not in type(
            dist.distributed_c10d._get_default_group()
        ).__name__ and "gloo" in str(dist.get_backend())
        if not real:
            y = self.total(y)
        return y + self.down.bias
