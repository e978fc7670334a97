import torch
import torch.nn as nn


class Gcn(nn.Module):
    def __init__(self, i=16, h=32, o=8):
        super().__init__()
        self.a, self.b, self.m = nn.Linear(i, h), nn.Linear(h, o), nn.Linear(2 * h, h)

    def gather(self, m, dst, n):
        return torch.zeros(n, m.shape[1], dtype=m.dtype, device=m.device).index_add(0, dst, m)

    def forward(self, x, src, dst, y):
        h = nn.functional.relu(self.a(x))
        message = nn.functional.relu(self.m(torch.cat([h[src], h[dst]], -1)))
        h = h + self.gather(message, dst, h.shape[0])
        return nn.functional.cross_entropy(self.b(h), y)


class Scatter(Gcn):
    def gather(self, m, dst, n):
        return torch.zeros(n, m.shape[1], dtype=m.dtype, device=m.device).scatter_add_(
            0, dst[:, None].expand_as(m), m
        )


class Gat(nn.Module):
    """Attention over the edges into each node, several heads."""

    def __init__(self, i=16, h=32, heads=4, o=8):
        super().__init__()
        self.heads, self.lin, self.out = heads, nn.Linear(i, h), nn.Linear(h, o)
        self.left = nn.Parameter(torch.randn(heads, h // heads))
        self.right = nn.Parameter(torch.randn(heads, h // heads))

    def forward(self, x, src, dst, y):
        n = x.shape[0]
        h = self.lin(x).view(n, self.heads, -1)
        score = (h * self.left).sum(-1)[src] + (h * self.right).sum(-1)[dst]
        weight = nn.functional.leaky_relu(score, 0.2).exp()
        total = torch.zeros(n, self.heads, dtype=x.dtype, device=x.device).index_add(0, dst, weight)
        share = weight / (total[dst] + 1e-9)
        out = torch.zeros_like(h).index_add(0, dst, h[src] * share.unsqueeze(-1))
        return nn.functional.cross_entropy(self.out(nn.functional.elu(out.flatten(1))), y)


class Sage(nn.Module):
    """The mean of the neighbours beside what a node knows itself, two layers."""

    def __init__(self, i=16, h=32, o=8):
        super().__init__()
        self.own1, self.near1 = nn.Linear(i, h), nn.Linear(i, h, bias=False)
        self.own2, self.near2 = nn.Linear(h, o), nn.Linear(h, o, bias=False)

    def mean(self, x, src, dst):
        zero = torch.zeros(x.shape[0], 1, dtype=x.dtype, device=x.device)
        count = zero.index_add(0, dst, torch.ones_like(dst[:, None], dtype=x.dtype))
        return torch.zeros_like(x).index_add(0, dst, x[src]) / count.clamp(min=1)

    def forward(self, x, src, dst, y):
        h = nn.functional.relu(self.own1(x) + self.near1(self.mean(x, src, dst)))
        out = self.own2(h) + self.near2(self.mean(h, src, dst))
        return nn.functional.cross_entropy(out, y)


def example_inputs():
    return {
        "x": torch.randn(6, 16),
        "src": torch.randint(0, 6, (12,)),
        "dst": torch.randint(0, 6, (12,)),
        "y": torch.randint(0, 8, (6,)),
    }
