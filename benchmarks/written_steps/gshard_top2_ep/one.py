import torch
from torch import nn
from torch.nn import functional as F

EXPERTS = 4


def top2_gates(logits):
    prob = logits.softmax(-1)
    best, idx = prob.topk(2, dim=-1)
    best = best / best.sum(-1, keepdim=True)
    choice = F.one_hot(idx, EXPERTS)                       # [tokens, 2, experts]
    return prob, best, choice


def slots(choice, capacity):
    # first choices queue before second choices
    queue = choice.transpose(0, 1).reshape(-1, EXPERTS)
    place = (queue.cumsum(0) - 1).view(2, -1, EXPERTS).transpose(0, 1)
    return F.one_hot((place * choice).sum(-1), capacity)   # [tokens, 2, capacity]


class Experts(nn.Module):
    def __init__(self, n, dim, hidden):
        super().__init__()
        self.w_in = nn.Parameter(torch.randn(n, dim, hidden) / dim ** 0.5)
        self.b_in = nn.Parameter(torch.randn(n, hidden) * 0.1)
        self.w_out = nn.Parameter(torch.randn(n, hidden, dim) / hidden ** 0.5)

    def forward(self, x):
        h = torch.einsum("ecd,edh->ech", x, self.w_in) + self.b_in[:, None]
        return torch.einsum("ech,ehd->ecd", F.silu(h), self.w_out)


class MoE(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.router = nn.Linear(dim, EXPERTS, bias=False)
        self.experts = Experts(EXPERTS, dim, hidden)

    def forward(self, x):
        prob, weight, choice = top2_gates(self.router(x))
        slot = slots(choice, x.shape[0])
        send = torch.einsum("tke,tkc->tec", choice.to(x.dtype), slot.to(x.dtype))
        back = torch.einsum("tk,tke,tkc->tec", weight, choice.to(x.dtype), slot.to(x.dtype))
        y = torch.einsum("tec,ecd->td", back, self.experts(torch.einsum("tec,td->ecd", send, x)))
        load = choice[:, 0].to(x.dtype).mean(0)
        return y, EXPERTS * (load * prob.mean(0)).sum()


class Net(nn.Module):
    def __init__(self, dim=10, hidden=14, classes=3):
        super().__init__()
        self.embed = nn.Linear(dim, dim)
        self.moe = MoE(dim, hidden)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        h = torch.tanh(self.embed(x))
        y, aux = self.moe(h)
        return self.head(h + y), aux


def build():
    net = Net()
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2)


def train_step(net, opt, x, y):
    logits, aux = net(x)
    loss = F.cross_entropy(logits, y) + 0.1 * aux
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.detach()
