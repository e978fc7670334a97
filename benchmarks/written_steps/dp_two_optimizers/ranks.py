import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class Squeeze(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(10, 8)
        self.code = nn.Linear(8, 4)

    def forward(self, x):
        return self.code(F.selu(self.fc(x)))


class Unsqueeze(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(10))
        self.fc = nn.Linear(4, 10)

    def forward(self, z):
        return self.fc(torch.tanh(z)) + self.bias.sigmoid()


def make_optimizers(squeeze, unsqueeze):
    slow = torch.optim.RMSprop(squeeze.parameters(), lr=0.005, alpha=0.8, eps=1e-2, centered=True)
    fast = torch.optim.SGD(unsqueeze.parameters(), lr=0.3, weight_decay=0.01)
    return slow, fast


def build():
    squeeze, unsqueeze = Squeeze(), Unsqueeze()
    return squeeze, unsqueeze, *make_optimizers(squeeze, unsqueeze)


def mean_over_ranks(module):
    for p in module.parameters():
        world = dist.get_world_size()
        copies = [torch.empty_like(p.grad) for _ in range(world)]
        dist.all_gather(copies, p.grad)
        p.grad.copy_(torch.stack(copies).mean(dim=0))


def train_step(squeeze, unsqueeze, slow, fast, x):
    slow.zero_grad()
    fast.zero_grad()
    first = F.l1_loss(unsqueeze(squeeze(x).detach()), x)
    first.backward()
    mean_over_ranks(unsqueeze)
    fast.step()
    z = squeeze(x)
    second = F.l1_loss(unsqueeze(z), x) + 0.1 * z.square().mean()
    second.backward()
    mean_over_ranks(squeeze)
    slow.step()
    return first.detach(), second.detach()
