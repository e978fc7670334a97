import torch
import torch.nn as nn
import torch.nn.functional as F


def tower(fan_in, hidden, out):
    return nn.Sequential(nn.Linear(fan_in, hidden), nn.GELU(), nn.Linear(hidden, out))


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = tower(9, 12, 6)
        self.text = tower(7, 11, 6)
        self.log_temp = nn.Parameter(torch.tensor(1.0))
        self.bias = nn.Parameter(torch.tensor(-2.0))

    def forward(self, img, txt):
        return F.normalize(self.image(img), dim=-1), F.normalize(self.text(txt), dim=-1)


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.02):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                d = p.grad
                if p.ndim > 1:
                    d = d + g["weight_decay"] * p
                    d = d * (g["trust"] * p.norm() / (d.norm() + 1e-9))
                buf = self.state[p].setdefault("buf", torch.zeros_like(p))
                buf.mul_(g["momentum"]).add_(d)
                p.sub_(buf, alpha=g["lr"])


def build():
    net = TwoTowers()
    return net, LARS(net.parameters(), lr=0.2, weight_decay=1e-2)


def train_step(net, opt, img, txt):
    opt.zero_grad()
    a, b = net(img, txt)
    logits = net.log_temp.exp() * a @ b.t() + net.bias
    sign = 2 * torch.eye(a.shape[0], dtype=a.dtype) - 1
    loss = -F.logsigmoid(sign * logits).sum() / a.shape[0]
    loss.backward()
    opt.step()
    return loss.detach()
