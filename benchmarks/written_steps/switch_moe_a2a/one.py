import torch
import torch.nn as nn
import torch.nn.functional as F

EXPERTS = 4
AUX_WEIGHT = 0.1


class Experts(nn.Module):
    def __init__(self, count, dim, hidden):
        super().__init__()
        self.w_in = nn.Parameter(torch.randn(count, dim, hidden) * 0.1)
        self.b_in = nn.Parameter(torch.zeros(count, 1, hidden))
        self.w_out = nn.Parameter(torch.randn(count, hidden, dim) * 0.1)

    def forward(self, x):
        return torch.bmm(F.gelu(torch.bmm(x, self.w_in) + self.b_in), self.w_out)


class SwitchLayer(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.router = nn.Linear(dim, EXPERTS)
        self.experts = Experts(EXPERTS, dim, hidden)

    def forward(self, x):
        gates = self.router(x).softmax(dim=-1)
        chosen = F.one_hot(gates.argmax(dim=-1), EXPERTS).to(x.dtype)
        sent = torch.einsum("te,td->etd", chosen, x)
        out = torch.einsum("te,etd->td", chosen * gates, self.experts(sent))
        aux = EXPERTS * (chosen.mean(0) * gates.mean(0)).sum()
        return out, aux


class Net(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.inp = nn.Linear(dim, dim)
        self.moe = SwitchLayer(dim, 16)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        out, aux = self.moe(h)
        return h + out, aux


def build():
    net = Net()
    return net, torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)


def train_step(net, opt, x, y):
    opt.zero_grad()
    out, aux = net(x)
    loss = F.mse_loss(out, y) + AUX_WEIGHT * aux
    loss.backward()
    opt.step()
    return loss.detach()
