import torch
import torch.nn as nn
import torch.nn.functional as F


class Causal(nn.Conv1d):
    def __init__(self, i, o, k, dilation=1):
        super().__init__(i, o, k, dilation=dilation)
        self.left = (k - 1) * dilation

    def forward(self, x):
        return super().forward(F.pad(x, (self.left, 0)))


class Tcn(nn.Module):
    """Dilated causal convolutions in residual blocks."""

    def __init__(self, c=16, layers=3):
        super().__init__()
        self.inp = nn.Conv1d(4, c, 1)
        self.a = nn.ModuleList(Causal(c, 2 * c, 3, 2**i) for i in range(layers))
        self.b = nn.ModuleList(Causal(2 * c, c, 3, 2**i) for i in range(layers))
        self.out = nn.Conv1d(c, 4, 1)

    def forward(self, x, y):
        h = self.inp(x)
        for a, b in zip(self.a, self.b, strict=True):
            h = h + b(F.relu(a(h)))
        return F.mse_loss(self.out(h), y)


class WaveNet(nn.Module):
    """Gates, and a sum of what every layer skips to the end."""

    def __init__(self, c=16, layers=3):
        super().__init__()
        self.inp = Causal(4, c, 2)
        self.filters = nn.ModuleList(Causal(c, c, 2, 2**i) for i in range(layers))
        self.gates = nn.ModuleList(Causal(c, c, 2, 2**i) for i in range(layers))
        self.res = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(layers))
        self.skips = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(layers))
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(c, c, 1), nn.ReLU(), nn.Conv1d(c, 4, 1))

    def forward(self, x, y):
        h, total = self.inp(x), 0
        for f, g, r, s in zip(self.filters, self.gates, self.res, self.skips, strict=True):
            z = torch.tanh(f(h)) * torch.sigmoid(g(h))
            total = total + s(z)
            h = h + r(z)
        return F.mse_loss(self.end(total), y)


class Conformer(nn.Module):
    """Feed-forward, attention, a gated depthwise convolution, feed-forward."""

    def __init__(self, d=32, heads=4):
        super().__init__()
        self.heads = heads
        self.inp = nn.Linear(4, d)
        self.ff1 = nn.Sequential(
            nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d)
        )
        self.ff2 = nn.Sequential(
            nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d)
        )
        self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.p1 = nn.Conv1d(d, 2 * d, 1)
        self.dw, self.bn = nn.Conv1d(d, d, 3, padding=1, groups=d), nn.BatchNorm1d(d)
        self.p2, self.out = nn.Conv1d(d, d, 1), nn.Linear(d, 4)

    def attend(self, x):
        b, t, _ = x.shape
        q, k, v = (
            f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def convolve(self, x):
        y = F.glu(self.p1(x.transpose(1, 2)), 1)
        return self.p2(F.silu(self.bn(self.dw(y)))).transpose(1, 2)

    def forward(self, x, y):
        h = self.inp(x.transpose(1, 2))
        h = h + 0.5 * self.ff1(h)
        h = h + self.attend(self.n1(h))
        h = h + self.convolve(self.n2(h))
        h = h + 0.5 * self.ff2(h)
        return F.mse_loss(self.out(self.n3(h)).transpose(1, 2), y)


def example_inputs():
    return {"x": torch.randn(4, 4, 8), "y": torch.randn(4, 4, 8)}
