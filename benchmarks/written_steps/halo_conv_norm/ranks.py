import torch
import torch.distributed as dist
from torch import nn

# The image is cut into bands of rows, one per rank, top to bottom.


def trade(up, down):
    """Give a slab to the band above and one to the band below; take theirs.
    Beyond the border of the image there are zeros."""
    rank, world = dist.get_rank(), dist.get_world_size()
    above, below = torch.zeros_like(up), torch.zeros_like(down)
    ops = []
    if rank > 0:
        ops += [dist.P2POp(dist.isend, up, rank - 1), dist.P2POp(dist.irecv, above, rank - 1)]
    if rank < world - 1:
        ops += [dist.P2POp(dist.isend, down, rank + 1), dist.P2POp(dist.irecv, below, rank + 1)]
    for req in dist.batch_isend_irecv(ops):
        req.wait()
    return above, below


class Halo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        above, below = trade(x[:, :, :1].contiguous(), x[:, :, -1:].contiguous())
        return torch.cat([above, x, below], dim=2)

    @staticmethod
    def backward(ctx, g):
        above, below = trade(g[:, :, :1].contiguous(), g[:, :, -1:].contiguous())
        inner = g[:, :, 1:-1].clone()
        inner[:, :, :1] += above
        inner[:, :, -1:] += below
        return inner


class SumBands(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class InstanceNorm(nn.Module):
    def __init__(self, channels, eps=1e-4):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(channels) + 0.5)
        self.offset = nn.Parameter(torch.randn(channels) * 0.1)
        self.eps = eps

    def forward(self, x):
        pixels = x.shape[2] * x.shape[3] * dist.get_world_size()
        mean = SumBands.apply(x.sum((2, 3), keepdim=True)) / pixels
        var = SumBands.apply((x - mean).square().sum((2, 3), keepdim=True)) / pixels
        return (x - mean) * (var + self.eps).rsqrt() * self.gain[:, None, None] + self.offset[:, None, None]


class Conv(nn.Conv2d):
    def __init__(self, c_in, c_out, bias=True):
        super().__init__(c_in, c_out, (3, 3), padding=(0, 1), bias=bias)

    def forward(self, x):
        return super().forward(Halo.apply(x))


class Restore(nn.Module):
    def __init__(self, c_in=3, width=6, c_out=2):
        super().__init__()
        self.a = Conv(c_in, width, bias=False)
        self.norm = InstanceNorm(width)
        self.b = Conv(width, width)
        self.c = nn.Conv2d(width, c_out, 1)

    def forward(self, x):
        h = torch.relu(self.norm(self.a(x)))
        return self.c(h + torch.tanh(self.b(h)))


def build():
    net = Restore()
    return net, torch.optim.Adamax(net.parameters(), lr=1e-2)


def train_step(net, opt, noisy, clean):
    diff = net(noisy) - clean
    pixels = torch.tensor(diff.numel())
    dist.all_reduce(pixels)
    loss = (diff.square() + 1e-2).sqrt().sum() / pixels   # Charbonnier
    opt.zero_grad()
    loss.backward()
    shown = loss.detach().clone()
    dist.all_reduce_coalesced([p.grad for p in net.parameters()] + [shown])
    opt.step()
    return shown
