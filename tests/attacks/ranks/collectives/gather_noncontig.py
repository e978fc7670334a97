"""Gather of a transposed tensor (not contiguous)."""

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
                o = torch.empty(n * t.shape[0], t.shape[1])
                dist.all_gather_into_tensor(o, t.t().contiguous().t(), group=g)
                return o.view(n, *t.shape).sum(0)

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
