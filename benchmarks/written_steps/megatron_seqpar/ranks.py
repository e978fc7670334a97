import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


def gather_seq(x):
    world = dist.get_world_size()
    out = x.new_empty((x.shape[0] * world,) + x.shape[1:])
    dist.all_gather_into_tensor(out, x.contiguous())
    return out


def reduce_scatter_seq(x):
    world = dist.get_world_size()
    out = x.new_empty((x.shape[0] // world,) + x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous())
    return out


def slice_seq(x):
    return x.chunk(dist.get_world_size(), dim=0)[dist.get_rank()].contiguous()


class ScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return slice_seq(x)

    @staticmethod
    def backward(ctx, grad):
        return gather_seq(grad)


class GatherToTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return gather_seq(x)

    @staticmethod
    def backward(ctx, grad):
        return reduce_scatter_seq(grad)


class ReduceScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return reduce_scatter_seq(x)

    @staticmethod
    def backward(ctx, grad):
        return gather_seq(grad)


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return gather_seq(x)

    @staticmethod
    def backward(ctx, grad):
        return slice_seq(grad)


class ColumnLinear(nn.Module):
    def __init__(self, fan_in, fan_out, world):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(fan_out // world, fan_in) * 0.02)
        self.bias = nn.Parameter(torch.zeros(fan_out // world))
        for p in self.parameters():
            p.tensor_parallel = True

    def forward(self, x):
        return F.linear(GatherToTensorParallel.apply(x), self.weight, self.bias)


class RowLinear(nn.Module):
    def __init__(self, fan_in, fan_out, world):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(fan_out, fan_in // world) * 0.02)
        self.bias = nn.Parameter(torch.zeros(fan_out))
        self.weight.tensor_parallel = True
        self.bias.sequence_parallel = True

    def forward(self, x):
        return ReduceScatterSequence.apply(F.linear(x, self.weight)) + self.bias


class Net(nn.Module):
    def __init__(self, world, dim=12, hidden=24):
        super().__init__()
        self.inp = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.up = ColumnLinear(dim, hidden, world)
        self.down = RowLinear(hidden, dim, world)
        self.out = nn.Linear(dim, 4)
        for p in self.norm.parameters():
            p.sequence_parallel = True

    def forward(self, x):
        h = ScatterSequence.apply(self.inp(x))
        h = h + self.down(F.gelu(self.up(self.norm(h))))
        return self.out(GatherSequence.apply(h))


def finish_gradients(params):
    for p in params:
        if getattr(p, "sequence_parallel", False):
            dist.all_reduce(p.grad)


def global_norm(params):
    shared = [p for p in params if not getattr(p, "tensor_parallel", False)]
    split = [p for p in params if getattr(p, "tensor_parallel", False)]
    split_sq = torch.stack([p.grad.pow(2).sum() for p in split]).sum()
    dist.all_reduce(split_sq)
    return (split_sq + torch.stack([p.grad.pow(2).sum() for p in shared]).sum()).sqrt()


def build(world_size):
    net = Net(world_size)
    return net, torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)


def train_step(net, opt, x, y):
    params = list(net.parameters())
    loss = F.mse_loss(net(x), y)
    loss.backward()
    finish_gradients(params)
    coef = torch.clamp(0.5 / (global_norm(params) + 1e-6), max=1.0)
    for p in params:
        p.grad.mul_(coef)
    opt.step()
    opt.zero_grad()
    return loss.detach()
