"""A collective over a group that the rank is not in is nothing."""

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
                k = [dist.new_group([q]) for q in range(n)]
                dist.all_reduce(t, group=k[0])
                dist.all_reduce(t, group=g)
                return t

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
