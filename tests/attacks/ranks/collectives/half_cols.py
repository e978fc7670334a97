"""Half of the columns summed in place, as a view."""

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
                dist.get_rank(g)
                t = t.clone()
                w = t.clone()
                dist.all_reduce(w, group=g)
                t[:, :4] = w[:, :4]
                u = t[:, 4:]
                h = dist.all_reduce(u, group=g, async_op=True)
                h.wait()
                return t

            @staticmethod
            def backward(ctx, d):
                return d, None

        return S.apply(y, self.g)
