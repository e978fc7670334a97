import copy
import math

import torch
from torch import nn


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_scale = nn.Parameter(torch.randn(dim) * 0.1)
        self.shift = nn.Parameter(torch.randn(dim) * 0.1)

    def forward(self, x):
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum().expand(x.shape[0])


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(dim // 2, hidden), nn.Tanh(), nn.Linear(hidden, dim))

    def forward(self, x):
        a, b = x.chunk(2, -1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, -1)
        s = torch.tanh(s)
        b = b * s.exp() + t
        pair = (b, a) if self.flip else (a, b)
        return torch.cat(pair, -1), s.sum(-1)


class Flow(nn.Module):
    def __init__(self, dim=6, hidden=9):
        super().__init__()
        self.steps = nn.ModuleList([
            ActNorm(dim), Coupling(dim, hidden, False),
            ActNorm(dim), Coupling(dim, hidden, True),
        ])

    def forward(self, x):
        """Negative log likelihood of every row under a standard normal base."""
        log_det = x.new_zeros(x.shape[0])
        for step in self.steps:
            x, ld = step(x)
            log_det = log_det + ld
        return 0.5 * x.pow(2).sum(-1) + 0.5 * x.shape[-1] * math.log(2 * math.pi) - log_det


class WithAverage(nn.Module):
    def __init__(self, flow, decay=0.8):
        super().__init__()
        self.flow = flow
        self.average = copy.deepcopy(flow).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def track(self):
        torch._foreach_lerp_(list(self.average.parameters()), list(self.flow.parameters()), 1 - self.decay)


def build():
    model = WithAverage(Flow())
    opt = torch.optim.SGD(model.flow.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    return model, opt, torch.optim.lr_scheduler.PolynomialLR(opt, total_iters=6, power=2.0)


def train_step(model, opt, sched, x):
    loss = model.flow(x).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    sched.step()
    model.track()
    return loss.detach()
