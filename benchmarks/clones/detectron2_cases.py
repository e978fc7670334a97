"""detectron2: batch norm over ranks."""

# pyright: basic

from torch import nn

from benchmarks.clones.parts import part

norms = part("detectron2.layers.batch_norm")


class Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), norm

    def forward(self, x):
        return self.norm(self.conv(x)).relu()


def one(mode: str = ""):
    return Block(nn.BatchNorm2d(4))


def many(mesh, mode: str = ""):
    return Block(norms.NaiveSyncBatchNorm(4, stats_mode=mode))
