"""Label dropout, as of classifier-free guidance."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.labels = nn.Embedding(17, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x, y):
        if self.training:
            drop = torch.rand(y.shape[0], device=y.device) < 0.1
            y = torch.where(drop, 16, y)
        return self.down(torch.relu(self.up(x + self.labels(y))))


def example_inputs():
    return {"x": torch.randn(4, 32), "y": torch.randint(0, 16, (4,))}
