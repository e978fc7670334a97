"""A scan whose first state is made of a length that the config holds."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Sizes:
    width: int = 16
    inner: int = 32
    states: int = 4


class Mixer(nn.Module):
    def __init__(self, config: Sizes):
        super().__init__()
        self.config = config
        self.into = nn.Linear(config.width, config.inner)
        self.rates = nn.Parameter(torch.zeros(config.inner, config.states))
        self.out = nn.Linear(config.inner, config.width)

    def forward(self, x):
        return self.out(self.scan(torch.relu(self.into(x))))

    def scan(self, x):
        kept = torch.exp(-torch.exp(self.rates))
        h = torch.zeros(x.size(0), self.config.inner, self.config.states)
        hs = []
        for t in range(x.shape[1]):
            h = kept * h + x[:, t].unsqueeze(-1)
            hs.append(h.sum(-1))
        return torch.stack(hs, dim=1)


class Net(nn.Module):
    def __init__(self, config: Sizes):
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.mixer = Mixer(config)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


def example_inputs():
    return {"x": torch.zeros(4, 6, 16)}
