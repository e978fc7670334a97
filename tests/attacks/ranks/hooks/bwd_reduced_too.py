"""Backward sums too."""

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
                dist.all_reduce(t, group=g)
                return t

            @staticmethod
            def backward(ctx, d):
                d = d.clone()
                dist.all_reduce(d)
                return d, None

        return S.apply(y, self.g)
