import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 16), nn.SiLU(), nn.LayerNorm(16))
        self.kind = nn.Linear(16, 4)
        self.box = nn.Linear(16, 2)

    def forward(self, x):
        h = self.trunk(x)
        return self.kind(h), self.box(h)


class Uncertainty(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, losses):
        return (torch.exp(-self.log_var) * losses + 0.5 * self.log_var).sum()


def task_losses(kind_logits, box_pred, kind, box):
    positive = (kind > 0).to(box.dtype)
    count = positive.sum().clamp(min=1.0)
    box_loss = (F.smooth_l1_loss(box_pred, box, reduction="none").sum(dim=-1) * positive).sum() / count
    return torch.stack([F.cross_entropy(kind_logits, kind), box_loss])


def make_optimizer(net, weigh):
    heads = list(net.kind.parameters()) + list(net.box.parameters())
    groups = [
        {"params": net.trunk.parameters(), "lr": 2e-3},
        {"params": heads, "lr": 1e-2},
        {"params": weigh.parameters(), "lr": 5e-2, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.2)


def build():
    net, weigh = MultiTask(), Uncertainty()
    return net, weigh, make_optimizer(net, weigh)


def train_step(net, weigh, opt, x, kind, box):
    opt.zero_grad()
    loss = weigh(task_losses(*net(x), kind, box))
    loss.backward()
    opt.step()
    return loss.detach()
