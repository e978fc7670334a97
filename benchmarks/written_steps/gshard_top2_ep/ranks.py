import torch
import torch.distributed as dist
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


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        return out

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        out = torch.empty_like(g)
        dist.all_to_all_single(out, g)
        return out


class BatchMean(torch.autograd.Function):
    """Mean over the ranks. The gradients are averaged over ranks later on, so
    each rank hands back the whole gradient of its own term."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x / dist.get_world_size()

    @staticmethod
    def backward(ctx, g):
        return g


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
        self.world = dist.get_world_size()
        self.local = EXPERTS // self.world
        self.router = nn.Linear(dim, EXPERTS, bias=False)
        self.experts = Experts(self.local, dim, hidden)

    def run_experts(self, x):
        e, c, d = x.shape
        x = AllToAll.apply(x.reshape(self.world, self.local, c, d))
        x = x.transpose(0, 1).reshape(self.local, self.world * c, d)
        x = self.experts(x)
        x = x.view(self.local, self.world, c, d).transpose(0, 1)
        return AllToAll.apply(x).reshape(e, c, d)

    def forward(self, x):
        prob, weight, choice = top2_gates(self.router(x))
        slot = slots(choice, x.shape[0])
        send = torch.einsum("tke,tkc->tec", choice.to(x.dtype), slot.to(x.dtype))
        back = torch.einsum("tk,tke,tkc->tec", weight, choice.to(x.dtype), slot.to(x.dtype))
        y = torch.einsum("tec,ecd->td", back, self.run_experts(torch.einsum("tec,td->ecd", send, x)))
        load = BatchMean.apply(choice[:, 0].to(x.dtype).mean(0))
        return y, EXPERTS * (load * BatchMean.apply(prob.mean(0))).sum()


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


def average_gradients(net):
    world = dist.get_world_size()
    for name, p in net.named_parameters():
        if ".experts." in name:
            # all_to_all brought the terms of every rank here already
            p.grad.div_(world)
        else:
            dist.all_reduce(p.grad)
            p.grad.div_(world)


def train_step(net, opt, x, y):
    logits, aux = net(x)
    loss = F.cross_entropy(logits, y) + 0.1 * aux
    opt.zero_grad()
    loss.backward()
    average_gradients(net)
    opt.step()
    shown = loss.detach().clone()
    dist.all_reduce(shown)
    return shown / dist.get_world_size()
