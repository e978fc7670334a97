"""Rank 1 sends back what it was sent."""

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
                o = torch.empty_like(t)
                if r == 0:
                    dist.send(t.contiguous(), 1, group=g)
                    dist.recv(o, 1, group=g)
                else:
                    dist.recv(o, 0, group=g)
                    dist.send(o.contiguous(), 0, group=g)
                return t + o

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
