import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, i)
        self.conv1 = nn.Conv2d(i, o, 3, padding=1)
        self.norm2 = nn.GroupNorm(4, o)
        self.conv2 = nn.Conv2d(o, o, 3, padding=1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x):
        h = self.conv1(nn.functional.silu(self.norm1(x)))
        return self.conv2(nn.functional.silu(self.norm2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.inp = nn.Conv2d(3, c, 3, padding=1)
        self.d1 = Block(c, c)
        self.d2 = Block(c, 2 * c)
        self.mid = Block(2 * c, 2 * c)
        self.u1 = Block(3 * c, c)
        self.out = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x, noise):
        h = self.inp(x)
        a = self.d1(h)
        b = self.mid(self.d2(nn.functional.avg_pool2d(a, 2)))
        u = nn.functional.interpolate(b, scale_factor=2, mode="nearest")
        return nn.functional.mse_loss(self.out(self.u1(torch.cat([u, a], 1))), noise)


def example_inputs():
    return {"x": torch.randn(4, 3, 8, 8), "noise": torch.randn(4, 3, 8, 8)}
