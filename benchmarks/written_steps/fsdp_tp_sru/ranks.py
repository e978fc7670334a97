import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

STEPS = 5


class SRU(nn.Module):
    """Light recurrence: the gates see the input only, the state runs elementwise."""

    def __init__(self, dim, state):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.cand = nn.Linear(dim, state, bias=False)
        self.forget = nn.Linear(dim, state)
        self.emit = nn.Linear(dim, state)
        self.out = nn.Linear(state, dim)

    def forward(self, x):
        u = self.norm(x)
        z, f, r = self.cand(u), torch.sigmoid(self.forget(u)), torch.sigmoid(self.emit(u))
        c, ys = torch.zeros_like(z[:, 0]), []
        for t in range(x.shape[1]):
            c = f[:, t] * c + (1 - f[:, t]) * z[:, t]
            ys.append(r[:, t] * torch.tanh(c))
        return x + self.out(torch.stack(ys, 1))


class Forecaster(nn.Module):
    def __init__(self, feats=3, dim=8, state=12):
        super().__init__()
        self.inp = nn.Linear(feats, dim)
        self.layers = nn.ModuleList([SRU(dim, state), SRU(dim, state)])
        self.out = nn.Linear(dim, 2)

    def forward(self, x):
        h = self.inp(x)
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


PLAN = {
    "cand": ColwiseParallel(),
    "forget": ColwiseParallel(),
    "emit": ColwiseParallel(),
    "out": RowwiseParallel(),
}


def build(mesh):
    net = Forecaster()
    for layer in net.layers:
        parallelize_module(layer, mesh["tp"], PLAN)
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(net, mesh=mesh["dp"])
    opt = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9, nesterov=True, foreach=False)
    return net, opt, mesh


def split_over_tp(p):
    names = p.device_mesh.mesh_dim_names
    return "tp" in names and p.placements[names.index("tp")].is_shard()


@torch.no_grad()
def clip(params, mesh, max_norm):
    once, split = torch.zeros(()), torch.zeros(())
    for p in params:
        sq = p.grad.to_local().pow(2).sum()
        if split_over_tp(p):
            split = split + sq
        else:
            once = once + sq
    dist.all_reduce(split, group=mesh.get_group("tp"))
    total = once + split
    dist.all_reduce(total, group=mesh.get_group("dp"))
    coef = (max_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.to_local().mul_(coef)


def train_step(net, opt, mesh, x, y, length):
    live = torch.arange(STEPS) <= length[:, None]
    count = live.sum()
    dist.all_reduce(count, group=mesh.get_group("dp"))
    err = F.huber_loss(net(x), y, reduction="none", delta=0.7).mean(-1)
    # fully_shard averages over dp, the count is a total
    loss = (err * live).sum() / count * mesh["dp"].size()
    opt.zero_grad()
    loss.backward()
    clip(list(net.parameters()), mesh, 0.3)
    opt.step()
    return loss.detach()
