import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def times(t, d):
    at = t[:, None] * torch.exp(-math.log(1e4) * torch.arange(d // 2, device=t.device) / (d // 2))
    return torch.cat((at.cos(), at.sin()), -1)


class DiTBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1 = nn.LayerNorm(d, elementwise_affine=False)
        self.n2 = nn.LayerNorm(d, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))

    def forward(self, x, c):
        b, n, d = x.shape
        s1, k1, g1, s2, k2, g2 = self.ada(c).unsqueeze(1).chunk(6, -1)
        h = self.n1(x) * (1 + k1) + s1
        q, k, v = self.qkv(h).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        y = y.transpose(1, 2).reshape(b, n, d)
        x = x + g1 * self.proj(y)
        return x + g2 * self.mlp(self.n2(x) * (1 + k2) + s2)


class DiT(nn.Module):
    def __init__(self, d=32, patch=2, heads=4, layers=2):
        super().__init__()
        self.d, self.patch = d, patch
        self.embed = nn.Conv2d(3, d, patch, patch)
        self.time = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))
        self.blocks = nn.ModuleList(DiTBlock(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, 3 * patch * patch)

    def forward(self, x, t, noise):
        b, _, h, w = x.shape
        p = self.patch
        c = self.time(times(t, self.d))
        z = self.embed(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            z = block(z, c)
        z = self.out(self.norm(z)).view(b, h // p, w // p, p, p, 3)
        return F.mse_loss(z.permute(0, 5, 1, 3, 2, 4).reshape(b, 3, h, w), noise)


class AdaMlp(nn.Module):
    """The modulated norm of a DiT before a perceptron alone."""

    def __init__(self, d=64):
        super().__init__()
        self.inp, self.ada = nn.Linear(64, d), nn.Sequential(nn.SiLU(), nn.Linear(d, 2 * d))
        self.norm = nn.LayerNorm(d, elementwise_affine=False)
        self.up, self.down, self.d = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), d

    def forward(self, x, t, noise):
        shift, scale = self.ada(times(t, self.d)).unsqueeze(1).chunk(2, -1)
        h = self.inp(x.flatten(2))
        h = h + self.down(F.gelu(self.up(self.norm(h) * (1 + scale) + shift)))
        return F.mse_loss(h, noise.flatten(2))


class Res(nn.Module):
    def __init__(self, i, o, d):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(4, i), nn.Conv2d(i, o, 3, padding=1)
        self.time = nn.Linear(d, o)
        self.n2, self.c2 = nn.GroupNorm(4, o), nn.Conv2d(o, o, 3, padding=1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, c):
        h = self.c1(F.silu(self.n1(x))) + self.time(c)[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))


class Mid(nn.Module):
    def __init__(self, c, heads=4):
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(4, c)
        self.qkv, self.proj = nn.Conv1d(c, 3 * c, 1), nn.Conv1d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).flatten(2)).chunk(3, 1)
        q, k, v = (z.reshape(b, self.heads, c // self.heads, -1) for z in (q, k, v))
        score = torch.einsum("bhcn,bhcm->bhnm", q, k) * (c // self.heads) ** -0.5
        y = torch.einsum("bhnm,bhcm->bhcn", score.softmax(-1), v).reshape(b, c, -1)
        return x + self.proj(y).view(b, c, h, w)


class Ddpm(nn.Module):
    """A U-Net that is told the time, with attention at the smallest size."""

    def __init__(self, c=8, d=16):
        super().__init__()
        self.d = d
        self.time = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))
        self.inp = nn.Conv2d(3, c, 3, padding=1)
        self.d1, self.down = Res(c, c, d), nn.Conv2d(c, c, 3, 2, 1)
        self.d2, self.attn = Res(c, 2 * c, d), Mid(2 * c)
        self.up, self.u1 = nn.ConvTranspose2d(2 * c, c, 2, 2), Res(2 * c, c, d)
        self.norm, self.out = nn.GroupNorm(4, c), nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x, t, noise):
        c = self.time(times(t, self.d))
        a = self.d1(self.inp(x), c)
        h = self.attn(self.d2(self.down(a), c))
        h = self.u1(torch.cat((self.up(h), a), 1), c)
        return F.mse_loss(self.out(F.silu(self.norm(h))), noise)


def example_inputs():
    return {
        "x": torch.randn(4, 3, 8, 8),
        "t": torch.rand(4),
        "noise": torch.randn(4, 3, 8, 8),
    }
