import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


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


def neighbours(left, right, to_left, to_right):
    """Swap with both neighbours at once; returns what came from the left and from the right."""
    from_left, from_right = torch.empty_like(to_right), torch.empty_like(to_left)
    ops = [
        dist.P2POp(dist.isend, to_right.contiguous(), right),
        dist.P2POp(dist.isend, to_left.contiguous(), left),
        dist.P2POp(dist.irecv, from_left, left),
        dist.P2POp(dist.irecv, from_right, right),
    ]
    for req in dist.batch_isend_irecv(ops):
        req.wait()
    return from_left, from_right


class NeighbourExchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, left, right, to_left, to_right):
        ctx.left, ctx.right = left, right
        return neighbours(left, right, to_left, to_right)

    @staticmethod
    def backward(ctx, grad_from_left, grad_from_right):
        # what came from the left was sent to the right over there, so it goes back left
        got_left, got_right = neighbours(ctx.left, ctx.right, grad_from_left, grad_from_right)
        return None, None, got_left, got_right


class OneWay(torch.autograd.Function):
    @staticmethod
    def forward(ctx, src, dst, t):
        ctx.src, ctx.dst = src, dst
        return OneWay.move(src, dst, t)

    @staticmethod
    def backward(ctx, g):
        return None, None, OneWay.move(ctx.dst, ctx.src, g)

    @staticmethod
    def move(src, dst, t):
        out = torch.empty_like(t, memory_format=torch.contiguous_format)
        ops = [dist.P2POp(dist.isend, t.contiguous(), dst), dist.P2POp(dist.irecv, out, src)]
        for req in dist.batch_isend_irecv(ops):
            req.wait()
        return out


def pair_loss(net, a, b, paired):
    logits = net.log_temp.exp() * a @ b.t() + net.bias
    sign = -torch.ones_like(logits)
    if paired:
        sign = sign + 2 * torch.eye(a.shape[0], dtype=a.dtype)
    return -F.logsigmoid(sign * logits).sum() / a.shape[0]


def siglip(net, a, b):
    """Own pairs, then the texts of the others: both ways at once, the far rank alone."""
    rank, world = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % world, (rank + 1) % world
    loss = pair_loss(net, a, b, paired=True)
    both, rest = divmod(world - 1, 2)
    going_left = going_right = b
    for _ in range(both):
        going_right, going_left = NeighbourExchange.apply(left, right, going_left, going_right)
        loss = loss + pair_loss(net, a, going_right, paired=False)
        loss = loss + pair_loss(net, a, going_left, paired=False)
    if rest:
        loss = loss + pair_loss(net, a, OneWay.apply(left, right, going_right), paired=False)
    return loss


def reduce_flat(params, loss):
    world = dist.get_world_size()
    sizes = [p.numel() for p in params]
    flat = torch.cat([p.grad.flatten() for p in params] + [loss.detach().view(1)])
    dist.all_reduce(flat)
    flat /= world
    start = 0
    for p, n in zip(params, sizes):
        p.grad.copy_(flat[start:start + n].view_as(p))
        start += n
    return flat[-1]


def build():
    net = TwoTowers()
    return net, LARS(net.parameters(), lr=0.2, weight_decay=1e-2)


def train_step(net, opt, img, txt):
    opt.zero_grad()
    loss = siglip(net, *net(img, txt))
    loss.backward()
    shown = reduce_flat(list(net.parameters()), loss)
    opt.step()
    return shown
