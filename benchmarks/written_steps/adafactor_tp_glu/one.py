import torch
import torch.nn as nn
import torch.nn.functional as F


class GLU(nn.Module):
    def __init__(self, d_in=10, d_ff=12, d_out=3):
        super().__init__()
        self.gate = nn.Linear(d_in, d_ff)
        self.value = nn.Linear(d_in, d_ff, bias=False)
        self.proj = nn.Linear(d_ff, d_out)

    def forward(self, x):
        return self.proj(torch.sigmoid(self.gate(x)) * self.value(x))


class Adafactor(torch.optim.Optimizer):
    def __init__(self, params, lr=5e-2, eps=(1e-30, 1e-3), threshold=0.8, decay=0.8):
        super().__init__(params, dict(lr=lr, eps=eps, threshold=threshold, decay=decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            eps1, eps2 = group["eps"]
            for p in group["params"]:
                g, st = p.grad, self.state[p]
                if not st:
                    st["t"] = 0
                    if p.ndim == 2:
                        st["row"] = torch.zeros_like(p[:, 0])
                        st["col"] = torch.zeros_like(p[0])
                    else:
                        st["full"] = torch.zeros_like(p)
                st["t"] += 1
                beta = 1 - st["t"] ** -group["decay"]
                sq = g * g + eps1
                if p.ndim == 2:
                    st["row"].mul_(beta).add_(sq.mean(1), alpha=1 - beta)
                    st["col"].mul_(beta).add_(sq.mean(0), alpha=1 - beta)
                    row = st["row"] / st["row"].mean()
                    u = g * row.rsqrt()[:, None] * st["col"].rsqrt()
                else:
                    st["full"].mul_(beta).add_(sq, alpha=1 - beta)
                    u = g * st["full"].rsqrt()
                u = u / torch.clamp(u.pow(2).mean().sqrt() / group["threshold"], min=1.0)
                scale = torch.clamp(p.pow(2).mean().sqrt(), min=eps2)
                p.sub_(group["lr"] * scale * u)


def build():
    net = GLU()
    return net, Adafactor(net.parameters())


def train_step(net, opt, x, y):
    loss = F.smooth_l1_loss(net(x), y, beta=0.5)
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.detach()
