import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 16)
        self.norm = nn.LayerNorm(16)
        self.fc2 = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc2(F.silu(self.norm(self.fc1(x))))


def build():
    net = Net()
    groups = [
        {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in net.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return net, torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.99), eps=1e-8)


def train_step(net, opt, x, y):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    return loss.detach()
