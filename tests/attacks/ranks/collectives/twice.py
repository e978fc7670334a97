"""Waited for twice."""

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
                dist.get_rank(g)
                t = t.clone()
                h = dist.all_reduce(t, group=g, async_op=True)
                h2 = h
                del h
                h2.wait()
                h2.wait()
                return t

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
