import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import GradScaler
from torch.optim.lr_scheduler import LinearLR


class Gated(nn.Module):
    def __init__(self, d=8, hidden=12):
        super().__init__()
        self.gate = nn.Linear(d, hidden, bias=False)
        self.up = nn.Linear(d, hidden, bias=False)
        self.down = nn.Linear(hidden, d, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def init():
    net = Gated()
    opt = torch.optim.Adagrad(net.parameters(), lr=0.01, eps=0.05)
    return net, opt, GradScaler("cpu"), LinearLR(opt, 0.1, 1.0, 20)


def train_step(net, opt, scaler, sched, x, y):
    opt.zero_grad()
    loss = F.huber_loss(net(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 0.3)
    scaler.step(opt)
    scaler.update()
    sched.step()
    return loss
