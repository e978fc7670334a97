"""A sparse buffer beside the model, which forward does not read: Whisper holds its heads so."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.register_buffer("chosen", torch.eye(4).bool().to_sparse(), persistent=False)

    def forward(self, x):
        return self.down(self.up(x).relu())


def example_inputs():
    return {"x": torch.randn(4, 16)}
