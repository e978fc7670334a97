import math
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

TEMP, ALPHA, WARM, TOTAL = 2.0, 0.7, 2, 10


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 8), nn.Mish(), nn.Linear(8, 8), nn.Mish())
        self.adapt = nn.Linear(8, 14, bias=False)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        h = self.body(x)
        return self.head(h), self.adapt(h)


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 14), nn.ReLU(), nn.Linear(14, 14), nn.ReLU())
        self.head = nn.Linear(14, 5)

    def forward(self, x):
        h = self.body(x)
        return self.head(h), h


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = Teacher().requires_grad_(False)
        self.student = Student()

    def forward(self, x, y):
        with torch.no_grad():
            want, feat = self.teacher(x)
        got, guess = self.student(x)
        soft = F.kl_div(F.log_softmax(got / TEMP, -1), F.log_softmax(want / TEMP, -1),
                        reduction="batchmean", log_target=True) * TEMP ** 2
        hint = F.mse_loss(guess, feat)
        return ALPHA * soft + (1 - ALPHA) * F.cross_entropy(got, y) + 0.3 * hint


def factor(step):
    if step < WARM:
        return (step + 1) / (WARM + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - WARM) / (TOTAL - WARM)))


class OwnerSharded:
    """Whole parameters dealt to ranks, largest first to the least loaded; the
    owner keeps the optimizer state, updates, and broadcasts the result."""

    def __init__(self, params, make, max_norm):
        self.params = list(params)
        self.max_norm = max_norm
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        load = [0] * self.world
        self.owner = {}
        for p in sorted(self.params, key=lambda p: -p.numel()):
            to = load.index(min(load))
            self.owner[p] = to
            load[to] += p.numel()
        self.mine = [p for p in self.params if self.owner[p] == self.rank]
        self.inner = make(self.mine)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.reduce_to_owners()
        self.clip_owned()
        self.inner.step()
        for p in self.params:
            dist.broadcast(p, src=self.owner[p])

    def reduce_to_owners(self):
        works = [dist.reduce(p.grad, dst=self.owner[p], async_op=True) for p in self.params]
        for w in works:
            w.wait()
        for p in self.mine:
            p.grad /= self.world

    def clip_owned(self):
        sq = sum(p.grad.square().sum() for p in self.mine)
        dist.all_reduce(sq)
        coef = torch.clamp(self.max_norm / (sq.sqrt() + 1e-6), max=1.0)
        for p in self.mine:
            p.grad *= coef


def build():
    pair = Pair()
    opt = OwnerSharded(
        pair.student.parameters(),
        lambda ps: torch.optim.NAdam(ps, lr=2e-2, weight_decay=1e-2, decoupled_weight_decay=True),
        max_norm=0.05,
    )
    return pair, opt, torch.optim.lr_scheduler.LambdaLR(opt.inner, factor)


def train_step(pair, opt, sched, x, y):
    loss = pair(x, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    return loss.detach()
