"""Scattered into a strided view (gloo may lack it)."""

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
                m = torch.empty(t.shape[0] // n, 2 * t.shape[1])[:, ::2]
                dist.reduce_scatter(m, [q.contiguous() for q in t.chunk(n)], group=g)
                o = [torch.empty_like(t[:2]) for _ in range(n)]
                dist.all_gather(o, m.contiguous(), group=g)
                return torch.cat(o)

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
