"""A number through the store."""

import torch
import torch.distributed as dist

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"

M = Block


class P(Split):
    def total(self, y):
        class S(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t, g):
                dist.get_world_size(g)
                r = dist.get_rank(g)
                t = t.clone()
                s = dist.distributed_c10d._get_default_store()
                s.set(f"k{r}", str(r))
                v = int(s.get("k0"))
                dist.all_reduce(t, group=g)
                return t * (1 + v)

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
