import torch
import torch.nn as nn


class DLRM(nn.Module):
    def __init__(self, tables=3, rows=32, d=8, dense=4):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, d, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 16), nn.ReLU(), nn.Linear(16, d), nn.ReLU())
        n = tables + 1
        self.register_buffer(
            "li", torch.tensor([i for i in range(n) for j in range(i)]), persistent=False
        )
        self.register_buffer(
            "lj", torch.tensor([j for i in range(n) for j in range(i)]), persistent=False
        )
        self.top = nn.Sequential(nn.Linear(d + n * (n - 1) // 2, 16), nn.ReLU(), nn.Linear(16, 1))

    def looked_up(self, i, ids):
        return self.bags[i](ids)

    def forward(self, dense, ids, click):
        x = self.bottom(dense)
        rows = [x] + [self.looked_up(i, ids[:, i]) for i in range(len(self.bags))]
        t = torch.stack(rows, 1)
        z = torch.bmm(t, t.transpose(1, 2))[:, self.li, self.lj]
        p = self.top(torch.cat([x, z], 1)).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(p, click)


class Summed(DLRM):
    def __init__(self, tables=3, rows=32, d=8, dense=4):
        super().__init__(tables, rows, d, dense)
        self.bags = nn.ModuleList(nn.Embedding(rows, d) for _ in range(tables))

    def looked_up(self, i, ids):
        return self.bags[i](ids).sum(1)


def example_inputs():
    return {
        "dense": torch.randn(4, 4),
        "ids": torch.randint(0, 32, (4, 3, 5)),
        "click": torch.rand(4),
    }
