import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


def summed(t):
    t = t.clone()
    dist.all_reduce(t)
    return t


def enter(h):
    h = h.view_as(h)
    h.register_hook(summed)
    return h


def leave(part):
    rest = summed(part.detach()) - part.detach()
    return part + rest


def build(world_size):
    mine = 16 // world_size
    w = nn.ParameterDict({
        "inp": nn.Parameter(torch.randn(8, 10) * 0.1),
        "gate": nn.Parameter(torch.randn(10, mine) * 0.1),
        "up": nn.Parameter(torch.randn(10, mine) * 0.1),
        "up_bias": nn.Parameter(torch.zeros(mine)),
        "down": nn.Parameter(torch.randn(mine, 10) * 0.1),
        "out": nn.Parameter(torch.randn(10, 5) * 0.1),
    })
    return w, torch.optim.NAdam(w.parameters(), lr=0.02, eps=1e-2)


def glu(w, h):
    wide = enter(h)
    mid = torch.sigmoid(wide @ w["gate"]) * (wide @ w["up"] + w["up_bias"])
    return F.softsign(leave(mid @ w["down"]))


def log_cosh(gap):
    return (gap + F.softplus(-2.0 * gap) - 0.6931471805599453).mean()


def train_step(w, nadam, x, y):
    h = x @ w["inp"]
    loss = log_cosh((h + glu(w, h)) @ w["out"] - y)
    nadam.zero_grad()
    loss.backward()
    nadam.step()
    return loss.detach()
