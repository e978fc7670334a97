"""A table made on the device of a weight."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        table = torch.arange(16, dtype=torch.float32, device=self.up.weight.device).cos()
        self.register_buffer("table", table, persistent=False)

    def forward(self, x):
        return self.down(self.up(x * self.table).relu())


def example_inputs():
    return {"x": torch.randn(4, 16)}
