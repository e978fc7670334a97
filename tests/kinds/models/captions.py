import torch
import torch.nn as nn
import torch.nn.functional as F


class Cross(nn.Module):
    def __init__(self, d, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.o = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)

    def forward(self, x, memory, causal=False):
        b, t, d = x.shape
        k, v = self.kv(memory).chunk(2, -1)
        q, k, v = (
            z.view(b, -1, self.heads, d // self.heads).transpose(1, 2) for z in (self.q(x), k, v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.o(y.transpose(1, 2).reshape(b, t, d))


class Captioner(nn.Module):
    """A convolutional eye, and words that attend to what it sees."""

    def __init__(self, words=64, d=32):
        super().__init__()
        self.eye = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, d, 3, 2, 1), nn.ReLU()
        )
        self.emb = nn.Embedding(words, d)
        self.own, self.cross = Cross(d), Cross(d)
        self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.head = nn.Linear(d, words)

    def forward(self, image, ids, y):
        seen = self.eye(image).flatten(2).transpose(1, 2)
        x = self.emb(ids)
        h = self.n1(x)
        x = x + self.own(h, h, causal=True)
        x = x + self.cross(self.n2(x), seen)
        x = x + self.mlp(self.n3(x))
        return F.cross_entropy(self.head(x).transpose(1, 2), y)


def example_inputs():
    return {
        "image": torch.randn(4, 3, 8, 8),
        "ids": torch.randint(0, 64, (4, 6)),
        "y": torch.randint(0, 64, (4, 6)),
    }
