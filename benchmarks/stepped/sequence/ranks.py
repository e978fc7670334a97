"""Tensor parallel layers between norms on pieces of the sequence, as Megatron writes them."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        world = dist.get_world_size(group)
        out = torch.empty(x.shape[0] * world, x.shape[1], dtype=x.dtype)
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size(ctx.group)
        out = torch.empty(grad.shape[0] // world, grad.shape[1], dtype=grad.dtype)
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class ScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        world = dist.get_world_size(group)
        out = torch.empty(x.shape[0] // world, x.shape[1], dtype=x.dtype)
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size(ctx.group)
        out = torch.empty(grad.shape[0] * world, grad.shape[1], dtype=grad.dtype)
        dist.all_gather_into_tensor(out, grad.contiguous(), group=ctx.group)
        return out, None


class ParallelFeedForward(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group
        world = dist.get_world_size(group)
        self.norm = nn.LayerNorm(8)
        self.w1 = nn.Parameter(torch.randn(16 // world, 8) / 4)
        self.w2 = nn.Parameter(torch.randn(8, 16 // world) / 4)
        self.final = nn.LayerNorm(8)

    def forward(self, x):
        h = GatherSequence.apply(self.norm(x), self.group)
        h = F.linear(F.gelu(F.linear(h, self.w1)), self.w2)
        h = ScatterSum.apply(h, self.group)
        return self.final(x + h)


def construct(group):
    model = ParallelFeedForward(group)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-2, amsgrad=True)


def finish_grads(model):
    for module in (model.norm, model.final):
        for p in module.parameters():
            dist.all_reduce(p.grad, group=model.group)


def clip_by_global_norm(model, max_norm):
    shards = [model.w1, model.w2]
    whole = list(model.norm.parameters()) + list(model.final.parameters())
    local = sum(p.grad.norm() ** 2 for p in shards)
    dist.all_reduce(local, group=model.group)
    for p in whole:
        local = local + p.grad.norm() ** 2
    scale = (max_norm / (local.sqrt() + 1e-6)).clamp(max=1.0)
    for p in model.parameters():
        p.grad *= scale


def train_step(model, opt, x, y):
    opt.zero_grad()
    loss = (model(x) - y).square().sum()
    loss.backward()
    finish_grads(model)
    clip_by_global_norm(model, 2.0)
    opt.step()
    reported = loss.detach()
    dist.all_reduce(reported, group=model.group)
    return reported
