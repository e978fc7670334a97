import math
import torch
import torch.nn as nn
import torch.nn.functional as F

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


def build():
    pair = Pair()
    opt = torch.optim.NAdam(pair.student.parameters(), lr=2e-2, weight_decay=1e-2, decoupled_weight_decay=True)
    return pair, opt, torch.optim.lr_scheduler.LambdaLR(opt, factor)


def train_step(pair, opt, sched, x, y):
    loss = pair(x, y)
    pair.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(pair.student.parameters(), 0.05)
    opt.step()
    sched.step()
    return loss.detach()
