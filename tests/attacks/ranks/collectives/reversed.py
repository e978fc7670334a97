"""Pieces in reverse order."""

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
                n = dist.get_world_size(g)
                dist.get_rank(g)
                c = [torch.empty_like(t[:2]) for _ in range(n)]
                dist.all_to_all(c, list(t.contiguous().chunk(n))[::-1], group=g)
                m = sum(c)
                o = [torch.empty_like(m) for _ in range(n)]
                dist.all_gather(o, m, group=g)
                return torch.cat(o)

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
