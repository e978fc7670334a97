import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (w(x).view(b, s, self.heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(o.transpose(1, 2).reshape(b, s, -1))


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(16, 16)
        self.pos = nn.Parameter(torch.zeros(8, 16))
        self.attn_norm = nn.LayerNorm(16)
        self.attn = Attention(16, 4)
        self.mlp_norm = nn.LayerNorm(16)
        self.mlp = Mlp(16)
        self.norm_out = nn.LayerNorm(16)
        self.head = nn.Linear(16, 12, bias=False)

    def forward(self, ids):
        h = self.tok(ids) + self.pos
        h = h + self.attn(self.attn_norm(h))
        h = h + self.mlp(self.mlp_norm(h))
        return self.head(self.norm_out(h))


def build():
    net = Lm()
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def train_step(net, opt, ids, labels):
    logits = net(ids)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.detach()
