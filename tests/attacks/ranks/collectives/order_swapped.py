"""Ranks call in another order."""

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
                a, b = t.clone(), (t * 3).clone()
                for q in (a, b) if r == 0 else (b, a):
                    dist.all_reduce(q, group=g)
                return a

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
