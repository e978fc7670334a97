"""One rank alone destroys a group: NCCL waits for the other."""

import torch
import torch.distributed as dist

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"run": False}

M = Block


class Over(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        t = t.clone()
        group = dist.new_group([0, 1])
        dist.all_reduce(t, group=group)
        if dist.get_rank() == 0:
            dist.destroy_process_group(group)
        return t

    @staticmethod
    def backward(ctx, d):
        return d


class P(Split):
    def total(self, y):
        return Over.apply(y)
