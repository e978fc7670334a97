import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

EXPERTS = 4
AUX_WEIGHT = 0.1


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        return out

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad)
        return out


class MeanOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x / dist.get_world_size()

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad / dist.get_world_size()


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
        self.world = dist.get_world_size()
        self.local = EXPERTS // self.world
        self.router = nn.Linear(dim, EXPERTS)
        self.experts = Experts(self.local, dim, hidden)

    def exchange(self, sent):
        experts, tokens, dim = sent.shape
        got = AllToAll.apply(sent.contiguous())
        got = got.view(self.world, self.local, tokens, dim).transpose(0, 1)
        out = self.experts(got.reshape(self.local, self.world * tokens, dim))
        out = out.view(self.local, self.world, tokens, dim).transpose(0, 1)
        return AllToAll.apply(out.reshape(experts, tokens, dim).contiguous())

    def balance(self, chosen, gates):
        share, weight = MeanOverRanks.apply(torch.stack([chosen.mean(0), gates.mean(0)]))
        return EXPERTS * (share * weight).sum()

    def forward(self, x):
        gates = self.router(x).softmax(dim=-1)
        chosen = F.one_hot(gates.argmax(dim=-1), EXPERTS).to(x.dtype)
        sent = torch.einsum("te,td->etd", chosen, x)
        out = torch.einsum("te,etd->td", chosen * gates, self.exchange(sent))
        return out, self.balance(chosen, gates)


class Net(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.inp = nn.Linear(dim, dim)
        self.moe = SwitchLayer(dim, 16)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        out, aux = self.moe(h)
        return h + out, aux


def sync_gradients(net):
    world = dist.get_world_size()
    for name, p in net.named_parameters():
        if ".experts." not in name:
            dist.all_reduce(p.grad)
        p.grad.div_(world)


def build():
    net = Net()
    return net, torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)


def train_step(net, opt, x, y):
    opt.zero_grad()
    out, aux = net(x)
    loss = F.mse_loss(out, y) + AUX_WEIGHT * aux
    loss.backward()
    sync_gradients(net)
    opt.step()
    return loss.detach()
