"""Gathered into strided views."""

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
                o = t.new_empty(t.shape[0], n, t.shape[1])
                dist.all_gather([o[:, k] for k in range(n)], t.contiguous(), group=g)
                return o.sum(1)

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
