import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


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


@torch.no_grad()
def set_outer_gradient(net, anchor):
    world = dist.get_world_size()
    for p, start in zip(net.parameters(), anchor):
        delta = start - p
        dist.all_reduce(delta)
        delta /= world
        p.copy_(start)
        p.grad = delta


def train_step(net, outer, x, y):
    anchor = [p.detach().clone() for p in net.parameters()]
    loss = inner_loop(net, x, y)
    set_outer_gradient(net, anchor)
    outer.step()
    return loss
