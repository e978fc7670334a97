"""Encoder and decoder, whose heads a method divides by."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MHA(nn.Module):
    def __init__(self, d_model: int, n_head: int):
        super().__init__()
        self.n_head = n_head
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_concat = nn.Linear(d_model, d_model)

    def split(self, t: Tensor) -> Tensor:
        batch, length, d_model = t.size()
        d = d_model // self.n_head
        return t.view(batch, length, self.n_head, d).transpose(1, 2)

    def concat(self, t: Tensor) -> Tensor:
        batch, head, length, d = t.size()
        return t.transpose(1, 2).contiguous().view(batch, length, head * d)

    def forward(self, q, k, v, mask=None):
        q, k, v = self.split(self.w_q(q)), self.split(self.w_k(k)), self.split(self.w_v(v))
        score = q @ k.transpose(2, 3) / (k.size(-1) ** 0.5)
        if mask is not None:
            score = score.masked_fill(mask == 0, -10000)
        return self.w_concat(self.concat(F.softmax(score, dim=-1) @ v))


class FFN(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.linear1 = nn.Linear(d, h)
        self.linear2 = nn.Linear(h, d)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.linear2(self.drop(torch.relu(self.linear1(x))))


class Enc(nn.Module):
    def __init__(self, d, h, n):
        super().__init__()
        self.att, self.n1 = MHA(d, n), nn.LayerNorm(d)
        self.ffn, self.n2 = FFN(d, h), nn.LayerNorm(d)

    def forward(self, x, m):
        x = self.n1(x + self.att(x, x, x, m))
        return self.n2(x + self.ffn(x))


class Dec(nn.Module):
    def __init__(self, d, h, n):
        super().__init__()
        self.att, self.n1 = MHA(d, n), nn.LayerNorm(d)
        self.cross, self.n2 = MHA(d, n), nn.LayerNorm(d)
        self.ffn, self.n3 = FFN(d, h), nn.LayerNorm(d)

    def forward(self, x, enc, tm, sm):
        x = self.n1(x + self.att(x, x, x, tm))
        x = self.n2(x + self.cross(x, enc, enc, sm))
        return self.n3(x + self.ffn(x))


class Translator(nn.Module):
    def __init__(self, vocab=48, d=32, h=64, n=4, layers=2, pad=1):
        super().__init__()
        self.pad = pad
        self.src, self.trg = (
            nn.Embedding(vocab, d, padding_idx=pad),
            nn.Embedding(vocab, d, padding_idx=pad),
        )
        self.encoder = nn.ModuleList([Enc(d, h, n) for _ in range(layers)])
        self.decoder = nn.ModuleList([Dec(d, h, n) for _ in range(layers)])
        self.out = nn.Linear(d, vocab)

    def forward(self, src, trg):
        sm = (src != self.pad).unsqueeze(1).unsqueeze(2)
        n = trg.shape[1]
        tm = (trg != self.pad).unsqueeze(1).unsqueeze(3) & torch.tril(torch.ones(n, n)).bool().to(
            src.device
        )
        e = self.src(src)
        for layer in self.encoder:
            e = layer(e, sm)
        x = self.trg(trg)
        for layer in self.decoder:
            x = layer(x, e, tm, sm)
        return self.out(x)
