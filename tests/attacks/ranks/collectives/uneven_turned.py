"""Uneven pieces put back in another order."""

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
                r = dist.get_rank(g)
                s = [3, 1]
                q = [s[r]] * n
                x = torch.cat([t])
                o = torch.empty(2 * s[r], t.shape[1])
                dist.all_to_all_single(o, x.contiguous(), q, s, group=g)
                m = o.view(n, s[r], -1).sum(0)
                big = [torch.empty(3, t.shape[1]) for _ in range(n)]
                m3 = torch.cat([m, torch.zeros(3 - s[r], t.shape[1])])
                dist.all_gather(big, m3, group=g)
                return torch.cat([big[0][:2], big[1][:1], big[0][2:3]])

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
