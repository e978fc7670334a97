import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


def tp_mean(x):
    # equal shards, so the mean of the means is the mean
    x = x.clone()
    dist.all_reduce(x)
    return x / dist.get_world_size()


class Column(nn.Linear):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__(d_in, d_out // dist.get_world_size(), bias=bias)
        for p in self.parameters():
            p.cut = 0


class Row(nn.Linear):
    def __init__(self, d_in, d_out):
        super().__init__(d_in // dist.get_world_size(), d_out)
        self.weight.cut = 1

    def forward(self, x):
        return _Reduce.apply(x @ self.weight.t()) + self.bias


class GLU(nn.Module):
    def __init__(self, d_in=10, d_ff=12, d_out=3):
        super().__init__()
        self.gate = Column(d_in, d_ff)
        self.value = Column(d_in, d_ff, bias=False)
        self.proj = Row(d_ff, d_out)

    def forward(self, x):
        x = _Copy.apply(x)
        return self.proj(torch.sigmoid(self.gate(x)) * self.value(x))


class Adafactor(torch.optim.Optimizer):
    def __init__(self, params, lr=5e-2, eps=(1e-30, 1e-3), threshold=0.8, decay=0.8):
        super().__init__(params, dict(lr=lr, eps=eps, threshold=threshold, decay=decay))

    @staticmethod
    def mean(x, p, dims=(0, 1)):
        """Mean over dims of the whole parameter, p being a shard of it."""
        m = x.mean(dims) if p.ndim == 2 else x.mean()
        return tp_mean(m) if getattr(p, "cut", None) in dims else m

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
                    st["row"].mul_(beta).add_(self.mean(sq, p, (1,)), alpha=1 - beta)
                    st["col"].mul_(beta).add_(self.mean(sq, p, (0,)), alpha=1 - beta)
                    level = st["row"].mean()
                    if getattr(p, "cut", None) == 0:
                        level = tp_mean(level)
                    u = g * (st["row"] / level).rsqrt()[:, None] * st["col"].rsqrt()
                else:
                    st["full"].mul_(beta).add_(sq, alpha=1 - beta)
                    u = g * st["full"].rsqrt()
                u = u / torch.clamp(self.mean(u * u, p).sqrt() / group["threshold"], min=1.0)
                scale = torch.clamp(self.mean(p * p, p).sqrt(), min=eps2)
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
