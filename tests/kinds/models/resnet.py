import torch
import torch.nn as nn


class BasicBlock(nn.Module):
    def __init__(self, i, o, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(o)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.down = (
            nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))
            if stride != 1 or i != o
            else None
        )

    def forward(self, x):
        y = nn.functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return nn.functional.relu(y + (x if self.down is None else self.down(x)))


class ResNet(nn.Module):
    def __init__(self, classes=8):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.blocks = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 16, 2))
        self.head = nn.Linear(16, classes)

    def forward(self, x, label):
        h = self.blocks(self.pool(nn.functional.relu(self.bn(self.stem(x)))))
        h = nn.functional.adaptive_avg_pool2d(h, 1).flatten(1)
        return nn.functional.cross_entropy(self.head(h), label)


class NormAct(nn.BatchNorm2d):
    """A norm that holds the activation after it."""

    def __init__(self, d):
        super().__init__(d)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(super().forward(x))


def conv(i, o, kernel):
    return nn.Sequential(nn.Conv2d(i, o, kernel, 1, kernel // 2, bias=False), NormAct(o))


class CrossStage(nn.Module):
    """Half of the channels go through a pair and are joined with the others (Wang et al. 2020)."""

    def __init__(self, classes=8):
        super().__init__()
        self.stem, self.down, self.expand = conv(3, 8, 3), conv(8, 8, 3), conv(8, 16, 1)
        self.pair = nn.Sequential(conv(8, 8, 1), conv(8, 8, 3))
        self.join = conv(16, 16, 1)
        self.head = nn.Linear(16, classes)

    def forward(self, x, label):
        a, b = self.expand(self.down(self.stem(x))).chunk(2, dim=1)
        h = self.join(torch.cat([a, b + self.pair(b)], 1)).mean((2, 3))
        return nn.functional.cross_entropy(self.head(h), label)


def example_inputs():
    return {"x": torch.randn(4, 3, 8, 8), "label": torch.randint(0, 8, (4,))}
