import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

LR, WARMUP = 0.2, 4


class GatherParam(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard):
        full = shard.new_empty((shard.shape[0] * dist.get_world_size(),) + shard.shape[1:])
        dist.all_gather_into_tensor(full, shard.contiguous())
        return full

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size()
        shard = grad.new_empty((grad.shape[0] // world,) + grad.shape[1:])
        dist.reduce_scatter_tensor(shard, grad.contiguous())
        return shard / world


class ShardedLinear(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        rows = fan_out // dist.get_world_size()
        self.weight = nn.Parameter(torch.randn(rows, fan_in) / fan_in ** 0.5)
        self.bias = nn.Parameter(torch.zeros(rows))

    def forward(self, x):
        return F.linear(x, GatherParam.apply(self.weight), GatherParam.apply(self.bias))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = ShardedLinear(12, 20)
        self.norm = nn.LayerNorm(20)
        self.fc2 = ShardedLinear(20, 6)

    def sharded(self):
        return [p for m in self.modules() if isinstance(m, ShardedLinear) for p in m.parameters()]

    def replicated(self):
        return list(self.norm.parameters())

    def forward(self, x):
        return self.fc2(F.gelu(self.norm(self.fc1(x))))


def average_replicated(net):
    for p in net.replicated():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def sum_of_squares(params):
    return sum(p.grad.pow(2).sum() for p in params)


def clip(net, limit):
    total = sum_of_squares(net.sharded())
    dist.all_reduce(total)
    total = total + sum_of_squares(net.replicated())
    scale = (limit / (total.sqrt() + 1e-6)).clamp(max=1.0)
    for p in net.parameters():
        p.grad *= scale


def set_lr(opt, state):
    state["step"] += 1
    for group in opt.param_groups:
        group["lr"] = LR * min(1.0, state["step"] / WARMUP)


def build():
    net = Net()
    return net, torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, weight_decay=0.02), {"step": 0}


def train_step(net, opt, state, x, y):
    loss = F.huber_loss(net(x), y)
    loss.backward()
    average_replicated(net)
    clip(net, 0.25)
    set_lr(opt, state)
    opt.step()
    opt.zero_grad()
    return loss.detach()
