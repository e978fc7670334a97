import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


class Joint(nn.Module):
    """Attention of two streams that are joined along the sequence, each with its own weights."""

    def __init__(self, d=32, heads=4):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(d, d) for _ in range(3))
        self.add_q, self.add_k, self.add_v = (nn.Linear(d, d) for _ in range(3))
        self.to_out, self.add_out = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x, c):
        b, n, d = x.shape
        width = d // self.heads
        q = self.to_q(x).view(b, -1, self.heads, width).transpose(1, 2)
        k = self.to_k(x).view(b, -1, self.heads, width).transpose(1, 2)
        v = self.to_v(x).view(b, -1, self.heads, width).transpose(1, 2)
        q2 = self.add_q(c).view(b, -1, self.heads, width).transpose(1, 2)
        k2 = self.add_k(c).view(b, -1, self.heads, width).transpose(1, 2)
        v2 = self.add_v(c).view(b, -1, self.heads, width).transpose(1, 2)
        q, k, v = torch.cat([q, q2], 2), torch.cat([k, k2], 2), torch.cat([v, v2], 2)
        y = F.scaled_dot_product_attention(q, k, v)
        y = y.transpose(1, 2).reshape(b, -1, self.heads * width)
        return self.to_out(y[:, :n]), self.add_out(y[:, n:])


class Net(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = Joint(d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, c):
        y, z = self.attn(self.n1(x), self.n2(c))
        x = x + y
        return x + self.ff(x), c + z


def example_inputs():
    return {"x": torch.randn(4, 16, 32), "c": torch.randn(4, 8, 32)}
