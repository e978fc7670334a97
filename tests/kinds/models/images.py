import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, d, heads=4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (z.view(b, n, self.heads, -1).transpose(1, 2) for z in (q, k, v))
        y = (q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5)).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, n, d))


def mlp(d, hidden):
    return nn.Sequential(nn.Linear(d, hidden), nn.GELU(), nn.Linear(hidden, d))


class ViT(nn.Module):
    """Patches through a norm, a linear layer and a norm, a class token, positions."""

    def __init__(self, d=32, patch=4, classes=8, layers=2):
        super().__init__()
        self.patch = patch
        wide = 3 * patch * patch
        self.embed = nn.Sequential(nn.LayerNorm(wide), nn.Linear(wide, d), nn.LayerNorm(d))
        self.token = nn.Parameter(torch.randn(1, 1, d))
        self.pos = nn.Parameter(torch.randn(1, 5, d))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2 * layers))
        self.attns = nn.ModuleList(Attention(d) for _ in range(layers))
        self.mlps = nn.ModuleList(mlp(d, 4 * d) for _ in range(layers))
        self.head = nn.Linear(d, classes)

    def forward(self, x, label):
        b, c, h, w = x.shape
        p = self.patch
        x = x.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        x = torch.cat([self.token.expand(b, -1, -1), self.embed(x)], 1) + self.pos
        for i, (attn, ff) in enumerate(zip(self.attns, self.mlps, strict=True)):
            x = x + attn(self.norms[2 * i](x))
            x = x + ff(self.norms[2 * i + 1](x))
        return F.cross_entropy(self.head(x[:, 0]), label)


class Plain(ViT):
    """Patches through one linear layer."""

    def __init__(self, d=32, patch=4):
        super().__init__(d, patch)
        self.embed = nn.Linear(3 * patch * patch, d)


class Mixer(nn.Module):
    def __init__(self, d=32, patch=2, classes=8):
        super().__init__()
        self.embed = nn.Conv2d(3, d, patch, patch)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.tokens, self.channels = mlp(16, 32), mlp(d, 4 * d)
        self.head = nn.Linear(d, classes)

    def forward(self, x, label):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.n1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.n2(x))
        return F.cross_entropy(self.head(x.mean(1)), label)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NextBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.dw = nn.Conv2d(d, d, 3, padding=1, groups=d)
        self.norm = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.gamma = nn.Parameter(1e-2 * torch.ones(d))

    def forward(self, x):
        y = self.norm(self.dw(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, d=16, classes=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, d, 2, 2), LayerNorm2d(d))
        self.stage1 = nn.Sequential(NextBlock(d), NextBlock(d))
        self.down = nn.Sequential(LayerNorm2d(d), nn.Conv2d(d, 2 * d, 2, 2))
        self.stage2 = NextBlock(2 * d)
        self.norm, self.head = nn.LayerNorm(2 * d), nn.Linear(2 * d, classes)

    def forward(self, x, label):
        x = self.stage2(self.down(self.stage1(self.stem(x))))
        return F.cross_entropy(self.head(self.norm(x.mean((2, 3)))), label)


class Inverted(nn.Module):
    """An inverted residual with squeeze and excitation."""

    def __init__(self, c, grow=4):
        super().__init__()
        h = c * grow
        self.expand = nn.Sequential(nn.Conv2d(c, h, 1, bias=False), nn.BatchNorm2d(h), nn.SiLU())
        self.dw = nn.Sequential(
            nn.Conv2d(h, h, 3, padding=1, groups=h, bias=False), nn.BatchNorm2d(h), nn.SiLU()
        )
        self.reduce, self.excite = nn.Conv2d(h, c, 1), nn.Conv2d(c, h, 1)
        self.project = nn.Sequential(nn.Conv2d(h, c, 1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        y = self.dw(self.expand(x))
        gate = self.excite(F.silu(self.reduce(F.adaptive_avg_pool2d(y, 1)))).sigmoid()
        return x + self.project(y * gate)


class MobileNet(nn.Module):
    def __init__(self, c=8, classes=8):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, 2, 1)
        self.blocks = nn.Sequential(Inverted(c), Inverted(c))
        self.head = nn.Linear(c, classes)

    def forward(self, x, label):
        x = self.blocks(self.stem(x))
        return F.cross_entropy(self.head(x.mean((2, 3))), label)


class Vgg(nn.Module):
    def __init__(self, c=8, classes=8):
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, c, 3, padding=1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(c, c, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
            *(nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(2 * c, 2 * c, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(8 * c, 64), nn.ReLU(inplace=True), nn.Linear(64, classes)
        )

    def forward(self, x, label):
        return F.cross_entropy(self.classifier(self.features(x)), label)


class Swin(nn.Module):
    """Attention within windows, the second time shifted, with a bias by relative place."""

    def __init__(self, d=16, window=2, heads=4, classes=8):
        super().__init__()
        self.window, self.heads = window, heads
        self.embed = nn.Conv2d(3, d, 2, 2)
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(4))
        self.qkvs = nn.ModuleList(nn.Linear(d, 3 * d) for _ in range(2))
        self.projs = nn.ModuleList(nn.Linear(d, d) for _ in range(2))
        self.mlps = nn.ModuleList(mlp(d, 4 * d) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(2, heads, window**2, window**2))
        self.head = nn.Linear(d, classes)

    def attend(self, x, i):
        b, h, w, d = x.shape
        s = self.window
        x = x.view(b, h // s, s, w // s, s, d).transpose(2, 3).reshape(-1, s * s, d)
        q, k, v = self.qkvs[i](x).view(-1, s * s, 3, self.heads, d // self.heads).unbind(2)
        score = torch.einsum("bnhd,bmhd->bhnm", q, k) * (d // self.heads) ** -0.5
        y = torch.einsum("bhnm,bmhd->bnhd", (score + self.bias[i]).softmax(-1), v).flatten(2)
        y = self.projs[i](y).view(b, h // s, w // s, s, s, d)
        return y.transpose(2, 3).reshape(b, h, w, d)

    def forward(self, x, label):
        x = self.embed(x).permute(0, 2, 3, 1)
        for i in range(2):
            y = torch.roll(self.norms[2 * i](x), (-i, -i), (1, 2))
            x = x + torch.roll(self.attend(y, i), (i, i), (1, 2))
            x = x + self.mlps[i](self.norms[2 * i + 1](x))
        return F.cross_entropy(self.head(x.mean((1, 2))), label)


def example_inputs():
    return {"x": torch.randn(4, 3, 8, 8), "label": torch.randint(0, 8, (4,))}
