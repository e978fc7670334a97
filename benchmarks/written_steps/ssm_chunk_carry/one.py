import torch
import torch.nn as nn
import torch.nn.functional as F

TAPS = 3


class SSMBlock(nn.Module):
    def __init__(self, dim, state):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(dim, TAPS) * 0.5)
        self.rate = nn.Parameter(torch.randn(state))
        self.drive = nn.Linear(dim, state)
        self.read = nn.Linear(state, dim, bias=False)
        self.skip = nn.Parameter(torch.ones(dim))
        self.gate = nn.Linear(dim, dim)

    def conv(self, u):
        """Causal depthwise convolution along dim 1."""
        u = torch.cat([u.new_zeros(u.shape[0], TAPS - 1, u.shape[2]), u], 1)
        return F.conv1d(u.transpose(1, 2), self.taps[:, None], groups=u.shape[2]).transpose(1, 2)

    def scan(self, b):
        a = torch.exp(-F.softplus(self.rate))
        h, out = torch.zeros_like(b[:, 0]), []
        for t in range(b.shape[1]):
            h = a * h + b[:, t]
            out.append(h)
        return torch.stack(out, 1)

    def forward(self, u):
        v = F.silu(self.conv(u))
        y = self.read(self.scan(self.drive(v))) + self.skip * v
        return u + y * torch.sigmoid(self.gate(u))


class Tagger(nn.Module):
    def __init__(self, feats=5, dim=8, state=6, tags=4):
        super().__init__()
        self.lift = nn.Linear(feats, dim)
        self.blocks = nn.ModuleList([SSMBlock(dim, state) for _ in range(2)])
        self.head = nn.Linear(dim, tags)

    def forward(self, x):
        h = self.lift(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def build():
    net = Tagger()
    return net, torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.05, amsgrad=True)


def train_step(net, opt, x, tags):
    loss = F.cross_entropy(net(x).flatten(0, 1), tags.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.detach()
