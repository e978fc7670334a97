import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

CHUNK = 96

QUANTILES = (0.1, 0.5, 0.9)


class QuantileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(7, 11)
        self.skip = nn.Linear(7, 10, bias=False)
        self.b = nn.Linear(11, 10)
        self.c = nn.Linear(10, len(QUANTILES))
        self.spare = nn.Linear(10, 2)

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.sigmoid(self.a(x))) + self.skip(x)))


def pinball(pred, target):
    total = 0.0
    for j, q in enumerate(QUANTILES):
        gap = target - pred[:, j]
        total = total + torch.maximum(q * gap, (q - 1) * gap).mean()
    return total / len(QUANTILES)


def make_average(net):
    order = list(net.parameters())[::-1]
    total = sum(p.numel() for p in order)
    flat = torch.zeros(total, dtype=order[0].dtype, device=order[0].device)

    def average():
        flat.zero_()
        at = 0
        for p in order:
            if p.grad is not None:
                flat[at:at + p.numel()].add_(p.grad.flatten())
            at += p.numel()
        for start in range(0, total, CHUNK):
            dist.all_reduce(flat[start:start + CHUNK])
        flat.mul_(1.0 / dist.get_world_size())
        at = 0
        for p in order:
            if p.grad is not None:
                p.grad = flat[at:at + p.numel()].reshape(p.shape).clone()
            at += p.numel()

    return average


def build():
    net = QuantileNet()
    ada = torch.optim.Adadelta(net.parameters(), lr=2.0, rho=0.8, eps=1e-4)
    return net, ada, make_average(net)


def train_step(net, ada, average, x, target):
    ada.zero_grad()
    loss = pinball(net(x), target)
    loss.backward()
    average()
    ada.step()
    return loss.detach()
