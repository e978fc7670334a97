import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.o = nn.Linear(dim, dim)

    def forward(self, h):
        x = self.norm(h)
        q, k, v = (w(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.q, self.k, self.v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return h + self.o(o.transpose(1, 2).flatten(2))


class Net(nn.Module):
    def __init__(self, length=8, dim=16):
        super().__init__()
        self.inp = nn.Linear(10, dim)
        self.pos = nn.Parameter(torch.zeros(length, dim))
        self.attn = Attention(dim, 4)
        self.out = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4))

    def forward(self, x):
        return self.out(self.attn(self.inp(x) + self.pos))


def build():
    net = Net()
    return net, torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)


def train_step(net, opt, x, y):
    opt.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    opt.step()
    return loss.detach()
