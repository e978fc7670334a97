"""All_gather_object of the rank numbers."""

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
                r = dist.get_rank(g)
                t = t.clone()
                obj = [None] * n
                dist.all_gather_object(obj, r, group=g)
                dist.all_reduce(t, group=g)
                return t * (1 + (obj[0] or 0))

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
