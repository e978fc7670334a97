"""Same calls in a row, other tensors on rank 1."""

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
                if r == 0:
                    dist.all_reduce(t, group=g)
                    dist.all_reduce(t * 1, group=g)
                else:
                    u = t * 1
                    dist.all_reduce(u, group=g)
                    dist.all_reduce(t, group=g)
                    return u
                return t

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
