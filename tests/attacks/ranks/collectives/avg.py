"""Average times n (gloo has none)."""

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
                n = dist.get_world_size(g)
                dist.get_rank(g)
                t = t.clone()
                dist.all_reduce(t, op=dist.ReduceOp.AVG, group=g)
                return t * n

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
