"""The U-Net of Stable Diffusion 1 (arXiv 2112.10752): 860 million parameters, latents of 64 x 64.

The step's embedding is given as its sine and cosine features, the text as 77 vectors of 768.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    def __init__(self, taken, given):
        super().__init__()
        self.norm1 = nn.GroupNorm(32, taken)
        self.conv1 = nn.Conv2d(taken, given, 3, padding=1)
        self.step = nn.Linear(1280, given)
        self.norm2 = nn.GroupNorm(32, given)
        self.conv2 = nn.Conv2d(given, given, 3, padding=1)
        self.skip = nn.Conv2d(taken, given, 1) if taken != given else nn.Identity()

    def forward(self, x, step):
        h = self.conv1(functional.silu(self.norm1(x)))
        h = h + self.step(functional.silu(step))[:, :, None, None]
        return self.conv2(functional.silu(self.norm2(h))) + self.skip(x)


class Attention(nn.Module):
    def __init__(self, width, context, heads=8):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(context, width, bias=False)
        self.to_v = nn.Linear(context, width, bias=False)
        self.to_out = nn.Linear(width, width)

    def forward(self, x, context):
        def split(y):
            return y.view(y.shape[0], y.shape[1], self.heads, -1).transpose(1, 2)

        q, k, v = split(self.to_q(x)), split(self.to_k(context)), split(self.to_v(context))
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.to_out(y.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value = nn.Linear(width, 4 * width)
        self.gate = nn.Linear(width, 4 * width)
        self.out = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.out(self.value(x) * functional.gelu(self.gate(x)))


class Transformer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.enter = nn.Linear(width, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.attention = Attention(width, width)
        self.cross = Attention(width, 768)
        self.mlp = Gated(width)
        self.leave = nn.Linear(width, width)

    def forward(self, x, context):
        batch, width, height, _ = x.shape
        h = self.enter(self.norm(x).flatten(2).transpose(1, 2))
        own = self.norm1(h)
        h = h + self.attention(own, own)
        h = h + self.cross(self.norm2(h), context)
        h = h + self.mlp(self.norm3(h))
        h = self.leave(h).transpose(1, 2)
        return x + h.reshape(batch, width, height, -1)


class Stage(nn.Module):
    def __init__(self, taken, given, attends):
        super().__init__()
        self.residual = Residual(taken, given)
        self.transformer = Transformer(given) if attends else None

    def forward(self, x, step, context):
        x = self.residual(x, step)
        return x if self.transformer is None else self.transformer(x, context)


class UNet(nn.Module):
    def __init__(self, widths=(320, 640, 1280, 1280), depth=2):
        super().__init__()
        self.step1, self.step2 = nn.Linear(320, 1280), nn.Linear(1280, 1280)
        self.enter = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down, self.narrow = nn.ModuleList(), nn.ModuleList()
        self.up, self.widen = nn.ModuleList(), nn.ModuleList()
        skips, width = [widths[0]], widths[0]
        for i, given in enumerate(widths):
            for _ in range(depth):
                self.down.append(Stage(width, given, i < len(widths) - 1))
                skips.append(given)
                width = given
            if i < len(widths) - 1:
                self.narrow.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                skips.append(width)
        self.middle1, self.middle2 = Stage(width, width, True), Residual(width, width)
        for i, given in reversed(list(enumerate(widths))):
            for _ in range(depth + 1):
                self.up.append(Stage(width + skips.pop(), given, i < len(widths) - 1))
                width = given
            if i:
                self.widen.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm = nn.GroupNorm(32, width)
        self.leave = nn.Conv2d(width, 4, 3, padding=1)
        self.depth = depth

    def forward(self, x, step, context, noise):
        step = self.step2(functional.silu(self.step1(step)))
        x = self.enter(x)
        skips = [x]
        for i, stage in enumerate(self.down):
            x = stage(x, step, context)
            skips.append(x)
            if i % self.depth == self.depth - 1 and i // self.depth < len(self.narrow):
                x = self.narrow[i // self.depth](x)
                skips.append(x)
        x = self.middle2(self.middle1(x, step, context), step)
        for i, stage in enumerate(self.up):
            x = stage(torch.cat([x, skips.pop()], 1), step, context)
            if i % (self.depth + 1) == self.depth and i // (self.depth + 1) < len(self.widen):
                x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
                x = self.widen[i // (self.depth + 1)](x)
        return functional.mse_loss(self.leave(functional.silu(self.norm(x))), noise)


def example_inputs(batch=1):
    latents = torch.randn(batch, 4, 64, 64)
    text = torch.randn(batch, 77, 768)
    return {"x": latents, "step": torch.randn(batch, 320), "context": text, "noise": latents + 1}
