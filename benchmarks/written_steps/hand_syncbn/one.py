import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean(dim=(2, 3)))


def make_optimizer(net):
    decay = [p for n, p in net.named_parameters() if p.ndim > 1]
    plain = [p for n, p in net.named_parameters() if p.ndim == 1]
    groups = [{"params": decay, "weight_decay": 5e-2}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)


def build():
    net = ConvNet()
    return net, make_optimizer(net)


def train_step(net, opt, x, y):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    return loss.detach()
