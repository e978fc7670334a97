import torch
import torch.nn as nn
import torch.nn.functional as F


class Recurrent(nn.Module):
    """A recurrent language model."""

    def __init__(self, vocab=64, d=32, h=32, kind=nn.GRU):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(vocab, d), kind(d, h, num_layers=2, batch_first=True)
        self.head = nn.Linear(h, vocab)

    def forward(self, ids, y):
        out, _ = self.rnn(self.emb(ids))
        return F.cross_entropy(self.head(out).transpose(1, 2), y)


class Cells(nn.Module):
    """A language model that steps from token to token by itself."""

    def __init__(self, vocab=64, d=32):
        super().__init__()
        self.emb, self.head = nn.Embedding(vocab, d), nn.Linear(d, vocab)
        self.first, self.second = nn.GRUCell(d, d), nn.LSTMCell(d, d)

    def forward(self, ids, y):
        a, b, out = None, None, []
        for token in self.emb(ids[:, :2]).unbind(1):
            a = self.first(token, a)
            b = self.second(a, b)
            out.append(self.head(b[0]))
        return F.cross_entropy(torch.stack(out, 2), y[:, :2])


class Lstm(Recurrent):
    def __init__(self):
        super().__init__(kind=nn.LSTM)


class TextCnn(nn.Module):
    """Words under kernels of several widths, the largest answer of each."""

    def __init__(self, vocab=64, d=16, c=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.convs = nn.ModuleList(nn.Conv1d(d, c, k) for k in (2, 3, 4))
        self.head = nn.Linear(3 * c, vocab)

    def forward(self, ids, y):
        x = self.emb(ids).transpose(1, 2)
        found = torch.cat([F.relu(conv(x)).amax(-1) for conv in self.convs], 1)
        return F.cross_entropy(self.head(found), y[:, 0])


class Alibi(nn.Module):
    """Attention with a bias by distance, for each head another slope."""

    def __init__(self, vocab=64, d=32, heads=4):
        super().__init__()
        self.heads = heads
        self.emb, self.norm = nn.Embedding(vocab, d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.head = nn.Linear(d, vocab)
        slopes = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)
        self.register_buffer("slopes", slopes[:, None, None], persistent=False)

    def forward(self, ids, y):
        x = self.emb(ids)
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).split(d, dim=2)
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in (q, k, v))
        at = torch.arange(t, device=x.device)
        far = (at[None, :] - at[:, None]).to(x.dtype)
        score = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5) + self.slopes * far
        score = score.masked_fill(far > 0, float("-inf"))
        out = (score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d)
        x = x + self.proj(out)
        x = x + self.down(F.gelu(self.up(x)))
        return F.cross_entropy(self.head(x).transpose(1, 2), y)


class Lora(nn.Module):
    """A linear layer with a change of low rank beside it."""

    def __init__(self, i, o, rank=4):
        super().__init__()
        self.base = nn.Linear(i, o)
        self.base.weight.requires_grad_(False)
        self.a, self.b = nn.Linear(i, rank, bias=False), nn.Linear(rank, o, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


class Adapted(nn.Module):
    def __init__(self, vocab=64, d=32):
        super().__init__()
        self.emb, self.up, self.down = nn.Embedding(vocab, d), Lora(d, 4 * d), Lora(4 * d, d)
        self.head = nn.Linear(d, vocab)

    def forward(self, ids, y):
        x = self.emb(ids)
        x = x + self.down(F.relu(self.up(x)))
        return F.cross_entropy(self.head(x).transpose(1, 2), y)


class Experts(nn.Module):
    """A loop over all experts, weighted by the gate."""

    def __init__(self, vocab=64, d=32, n=4, top=2):
        super().__init__()
        self.top = top
        self.emb, self.gate, self.head = (
            nn.Embedding(vocab, d),
            nn.Linear(d, n),
            nn.Linear(d, vocab),
        )
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d)) for _ in range(n)
        )

    def mixed(self, x, weights):
        return sum(weights[..., i : i + 1] * f(x) for i, f in enumerate(self.experts))

    def forward(self, ids, y):
        x = self.emb(ids)
        best, which = self.gate(x).softmax(-1).topk(self.top, -1)
        weights = torch.zeros_like(self.gate(x)).scatter(-1, which, best)
        return F.cross_entropy(self.head(x + self.mixed(x, weights)).transpose(1, 2), y)


class Sparse(Experts):
    """Each expert on its own tokens."""

    def mixed(self, x, weights):
        out = torch.zeros_like(x)
        for i, f in enumerate(self.experts):
            at = torch.where(weights[..., i] > 0)
            out[at] += weights[..., i : i + 1][at] * f(x[at])
        return out


class Soft(Experts):
    """Slots that are mixtures of all tokens."""

    def mixed(self, x, weights):
        share = weights.softmax(1)
        slots = share.transpose(1, 2) @ x
        done = torch.stack([f(slots[:, i]) for i, f in enumerate(self.experts)], 1)
        return weights.softmax(-1) @ done


class Perceiver(nn.Module):
    """A few latent vectors read the tokens and answer for them."""

    def __init__(self, vocab=64, d=32, latents=4):
        super().__init__()
        self.emb, self.latents = nn.Embedding(vocab, d), nn.Parameter(torch.randn(latents, d))
        self.read = nn.MultiheadAttention(d, 4, batch_first=True)
        self.answer = nn.MultiheadAttention(d, 4, batch_first=True)
        self.mlp = nn.Sequential(
            nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)
        )
        self.head = nn.Linear(d, vocab)

    def forward(self, ids, y):
        x = self.emb(ids)
        z = self.latents.expand(x.shape[0], -1, -1)
        z = z + self.read(z, x, x, need_weights=False)[0]
        z = z + self.mlp(z)
        x = x + self.answer(x, z, z, need_weights=False)[0]
        return F.cross_entropy(self.head(x).transpose(1, 2), y)


class Raw(nn.Module):
    """Parameters and `@`."""

    def __init__(self, vocab=64, d=32):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab, d))
        self.w1, self.w2 = nn.Parameter(torch.randn(d, 4 * d)), nn.Parameter(torch.randn(4 * d, d))

    def forward(self, ids, y):
        x = self.table[ids]
        x = x + F.relu(x @ self.w1) @ self.w2
        return F.cross_entropy((x @ self.table.t()).transpose(1, 2), y)


def example_inputs():
    return {"ids": torch.randint(0, 64, (4, 8)), "y": torch.randint(0, 64, (4, 8))}
