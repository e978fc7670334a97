import torch
import torch.nn as nn
import torch.nn.functional as F


def tower(d, hidden, out):
    return nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, out))


class TwoTower(nn.Module):
    """Users and items, each other's negatives within the batch."""

    def __init__(self, rows=64, d=16):
        super().__init__()
        self.users, self.items = nn.Embedding(rows, d), nn.Embedding(rows, d)
        self.left, self.right = tower(d, 64, d), tower(d, 64, d)

    def forward(self, a, b):
        u = F.normalize(self.left(self.users(a).mean(1)), dim=-1)
        v = F.normalize(self.right(self.items(b).mean(1)), dim=-1)
        score = u @ v.t() / 0.1
        return F.cross_entropy(score, torch.arange(score.shape[0], device=score.device))


class Siamese(nn.Module):
    """One encoder for both sides; the more alike, the closer."""

    def __init__(self, rows=64, d=32):
        super().__init__()
        self.emb, self.net = nn.Embedding(rows, d), tower(d, 64, d)
        self.scale = nn.Parameter(torch.ones(()))

    def encode(self, ids):
        return self.net(self.emb(ids)).amax(1)

    def forward(self, a, b):
        near = (self.encode(a) - self.encode(b)).pow(2).sum(-1)
        return F.softplus(near * self.scale - 1).mean()


class Seq2Seq(nn.Module):
    """A recurrent encoder and decoder with attention between them."""

    def __init__(self, rows=64, d=32):
        super().__init__()
        self.src, self.dst = nn.Embedding(rows, d), nn.Embedding(rows, d)
        self.enc, self.dec = nn.GRU(d, d, batch_first=True), nn.GRU(d, d, batch_first=True)
        self.mix, self.head = nn.Linear(2 * d, d), nn.Linear(d, rows)

    def forward(self, a, b):
        memory, last = self.enc(self.src(a))
        out, _ = self.dec(self.dst(b[:, :-1]), last)
        seen = (out @ memory.transpose(1, 2)).softmax(-1) @ memory
        h = torch.tanh(self.mix(torch.cat((out, seen), -1)))
        return F.cross_entropy(self.head(h).transpose(1, 2), b[:, 1:])


class Translator(nn.Module):
    """`nn.Transformer` as it comes."""

    def __init__(self, rows=64, d=32):
        super().__init__()
        self.src, self.dst = nn.Embedding(rows, d), nn.Embedding(rows, d)
        self.body = nn.Transformer(d, 4, 1, 1, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(d, rows)

    def forward(self, a, b):
        t = b.shape[1] - 1
        mask = torch.full((t, t), float("-inf"), device=a.device).triu(1)
        h = self.body(self.src(a), self.dst(b[:, :-1]), tgt_mask=mask)
        return F.cross_entropy(self.head(h).transpose(1, 2), b[:, 1:])


def example_inputs():
    return {"a": torch.randint(0, 64, (4, 6)), "b": torch.randint(0, 64, (4, 7))}
