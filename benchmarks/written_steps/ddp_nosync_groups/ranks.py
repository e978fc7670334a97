from contextlib import nullcontext
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUM = 2


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, h):
        return h + self.down(F.gelu(self.up(self.norm(h))))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(12, 16)
        self.blocks = nn.ModuleList([Block(16) for _ in range(2)])
        self.head = nn.Linear(16, 6)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def no_decay_names(net):
    return {n for n, p in net.named_parameters() if p.ndim < 2}


def make_optimizer(model, skip):
    decay = [p for n, p in model.named_parameters() if n not in skip]
    plain = [p for n, p in model.named_parameters() if n in skip]
    groups = [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=0.05, momentum=0.9)


def warmup(step):
    return min(1.0, (step + 1) / 5)


def build():
    net = Classifier()
    skip = no_decay_names(net)
    model = DDP(net)
    opt = make_optimizer(net, skip)
    return model, opt, torch.optim.lr_scheduler.LambdaLR(opt, warmup)


def train_step(model, opt, sched, x, y):
    opt.zero_grad(set_to_none=True)
    total = torch.zeros((), device=x.device)
    for i, (xb, yb) in enumerate(zip(x.chunk(ACCUM), y.chunk(ACCUM))):
        sync = (i + 1) % ACCUM == 0
        with nullcontext() if sync else model.no_sync():
            loss = F.cross_entropy(model(xb), yb)
            (loss / ACCUM).backward()
        total += loss.detach() / ACCUM
    opt.step()
    sched.step()
    return total
