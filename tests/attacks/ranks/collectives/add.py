"""A counter in the store that ranks share."""

import torch
import torch.distributed as dist

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def total(self, y):
        class S(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t, g):
                dist.get_world_size(g)
                dist.get_rank(g)
                t = t.clone()
                s = dist.distributed_c10d._get_default_store()
                v = s.add("count", 1)
                dist.all_reduce(t, group=g)
                return t * (2 if v > 4 else 1)

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
