"""Changed while it is sent."""

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
                peer = 1 - r
                o = torch.empty_like(t)
                u = t.clone()
                a = dist.isend(u, peer, group=g)
                u.mul_(2)
                b = dist.irecv(o, peer, group=g)
                a.wait()
                b.wait()
                return t + o

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
