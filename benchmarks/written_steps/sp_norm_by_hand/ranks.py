import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


def join(t):
    parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, t.contiguous())
    return torch.cat(parts, dim=1)


def sum_and_split(t):
    t = t.clone()
    dist.all_reduce(t)
    n = t.size(1) // dist.get_world_size()
    return t.narrow(1, dist.get_rank() * n, n).contiguous()


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, joining):
        ctx.joining = joining
        return join(t) if joining else sum_and_split(t)

    @staticmethod
    def backward(ctx, g):
        return (sum_and_split(g) if ctx.joining else join(g)), None


class Forecaster(nn.Module):
    def __init__(self, world, dim=8, hidden=12, out=3):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))
        self.wide = nn.Linear(dim, hidden // world)
        self.narrow = nn.Linear(hidden // world, dim)
        self.heads = nn.Linear(dim, 2 * out)

    def normalize(self, h):
        centered = h - h.mean(dim=-1, keepdim=True)
        var = centered.square().mean(dim=-1, keepdim=True)
        return centered / torch.sqrt(var + 1e-5) * self.gain + self.shift

    def forward(self, seq):
        whole = Exchange.apply(self.normalize(seq), True)
        part = torch.atan(self.wide(whole)) @ self.narrow.weight.t()
        h = seq + Exchange.apply(part, False) + self.narrow.bias
        return self.heads(h).chunk(2, dim=-1)


def build(world_size):
    net = Forecaster(world_size)
    return net, torch.optim.Adagrad(net.parameters(), lr=0.05, initial_accumulator_value=0.1)


def train_step(net, adagrad, seq, goal):
    adagrad.zero_grad()
    mean, log_var = net(seq)
    nll = 0.5 * (log_var + (goal - mean).square() * torch.exp(-log_var))
    loss = nll.sum() / (goal.numel() * dist.get_world_size())
    loss.backward()
    for p in (net.gain, net.shift, net.narrow.bias, *net.heads.parameters()):
        dist.all_reduce(p.grad)
    adagrad.step()
    shown = loss.detach()
    dist.all_reduce(shown)
    return shown
