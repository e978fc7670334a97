import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

WORKERS = 2

INNER_LR, INNER_STEPS = 0.05, 2
OUTER_LR, OUTER_MOMENTUM = 0.7, 0.9


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 16)
        self.norm = nn.LayerNorm(16)
        self.fc2 = nn.Linear(16, 3)

    def forward(self, x):
        return self.fc2(torch.tanh(self.norm(self.fc1(x))))


def inner_loop(net, x, y):
    opt = torch.optim.SGD(net.parameters(), lr=INNER_LR, momentum=0.5)
    losses = []
    for xb, yb in zip(x.chunk(INNER_STEPS), y.chunk(INNER_STEPS)):
        opt.zero_grad()
        loss = F.smooth_l1_loss(net(xb), yb)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean()


def build():
    net = Net()
    return net, torch.optim.SGD(net.parameters(), lr=OUTER_LR, momentum=OUTER_MOMENTUM, nesterov=True)


def train_step(net, outer, x, y):
    outer.zero_grad()
    losses = []
    deltas = [torch.zeros_like(p) for p in net.parameters()]
    for xw, yw in zip(x.chunk(WORKERS), y.chunk(WORKERS)):
        worker = copy.deepcopy(net)
        losses.append(inner_loop(worker, xw, yw))
        for d, p, w in zip(deltas, net.parameters(), worker.parameters()):
            d += (p.detach() - w.detach()) / WORKERS
    for p, d in zip(net.parameters(), deltas):
        p.grad = d
    outer.step()
    return torch.stack(losses).mean()
