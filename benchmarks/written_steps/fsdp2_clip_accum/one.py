import torch
import torch.nn as nn
import torch.nn.functional as F


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.value = nn.Linear(dim, hidden, bias=False)
        self.out = nn.Linear(hidden, dim, bias=True)

    def forward(self, x):
        return self.out(F.silu(self.gate(x)) * self.value(x))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.mlp = SwiGLU(dim, 2 * dim)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(16), Block(16)])
        self.norm = nn.RMSNorm(16, eps=1e-6)
        self.head = nn.Linear(16, 8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def warmup(step):
    return min(1.0, 0.5 + step / 8)


def split_params(net):
    decay, plain = [], []
    for name, p in net.named_parameters():
        if name.endswith("bias") or "norm" in name:
            plain.append(p)
        else:
            decay.append(p)
    return [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]


def build():
    net = Net()
    opt = torch.optim.AdamW(split_params(net), lr=1e-2)
    return net, opt, torch.optim.lr_scheduler.LambdaLR(opt, warmup)


def train_step(net, opt, sched, x, y):
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()
    sched.step()
    opt.zero_grad()
    return loss.detach()
