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


def example_inputs():
    return {
        "x": torch.randn(6, 16),
        "src": torch.randint(0, 6, (12,)),
        "dst": torch.randint(0, 6, (12,)),
        "y": torch.randint(0, 8, (6,)),
    }
