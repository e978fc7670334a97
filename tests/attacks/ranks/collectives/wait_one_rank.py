"""Waited for on rank 0 only."""

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
                r = dist.get_rank(g)
                t = t.clone()
                h = dist.all_reduce(t, group=g, async_op=True)
                if r == 0:
                    h.wait()
                return t

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
