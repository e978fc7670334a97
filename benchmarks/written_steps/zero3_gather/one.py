import torch
import torch.nn as nn
import torch.nn.functional as F

LR, WARMUP = 0.2, 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 20)
        self.norm = nn.LayerNorm(20)
        self.fc2 = nn.Linear(20, 6)

    def forward(self, x):
        return self.fc2(F.gelu(self.norm(self.fc1(x))))


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
    nn.utils.clip_grad_norm_(net.parameters(), 0.25)
    set_lr(opt, state)
    opt.step()
    opt.zero_grad()
    return loss.detach()
