import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

MICRO = 2


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.value = nn.Linear(dim, hidden, bias=False)
        self.out = nn.Linear(hidden, dim, bias=True)

    def forward(self, x):
        return self.out(F.silu(self.gate(x)) * self.value(x))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.mlp = SwiGLU(dim, 2 * dim)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(16), Block(16)])
        self.norm = nn.RMSNorm(16, eps=1e-6)
        self.head = nn.Linear(16, 8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def warmup(step):
    return min(1.0, 0.5 + step / 8)


def split_params(net):
    decay, plain = [], []
    for name, p in net.named_parameters():
        if name.endswith("bias") or "norm" in name:
            plain.append(p)
        else:
            decay.append(p)
    return [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]


def build(mesh):
    net = Net()
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    opt = torch.optim.AdamW(split_params(net), lr=1e-2)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, warmup)
    return net, opt, sched


@torch.no_grad()
def clip_sharded_(params, max_norm):
    grads = [p.grad.to_local() for p in params]
    total = torch.stack([g.pow(2).sum() for g in grads]).sum()
    dist.all_reduce(total)
    coef = torch.clamp(max_norm / (total.sqrt() + 1e-6), max=1.0)
    for g in grads:
        g.mul_(coef)


def train_step(net, opt, sched, x, y):
    losses = []
    for i, (xb, yb) in enumerate(zip(x.chunk(MICRO), y.chunk(MICRO))):
        net.set_requires_gradient_sync(i == MICRO - 1)
        loss = F.cross_entropy(net(xb), yb) / MICRO
        loss.backward()
        losses.append(loss.detach())
    clip_sharded_(list(net.parameters()), 0.5)
    opt.step()
    sched.step()
    opt.zero_grad()
    return torch.stack(losses).sum()
