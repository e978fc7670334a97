import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(x).view(b, s, self.heads, 3, self.head_dim).permute(3, 0, 2, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(o.transpose(1, 2).reshape(b, s, d))


class Gpt(nn.Module):
    def __init__(self, vocab=16, dim=16, heads=4):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        h = self.emb(ids)
        h = h + self.attn(self.norm1(h))
        h = h + self.fc2(F.gelu(self.fc1(self.norm2(h))))
        return self.head(h)


def build():
    net = Gpt()
    return net, torch.optim.Adam(net.parameters(), lr=5e-3)


def train_step(net, opt, ids, labels):
    opt.zero_grad()
    loss = F.cross_entropy(net(ids).flatten(0, 1), labels.flatten())
    loss.backward()
    opt.step()
    return loss.detach()
