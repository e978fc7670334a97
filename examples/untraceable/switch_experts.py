"""A switch layer: each token goes to one expert, by boolean masks of data-dependent size."""

import torch
import torch.nn as nn


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class SwitchLayer(nn.Module):
    def __init__(self, width=8, hidden=16, experts=3):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, hidden) for _ in range(experts))

    def forward(self, x):
        probs = torch.softmax(self.router(x), dim=-1)
        gate, choice = probs.max(dim=-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = choice == number
            if mask.any():
                out[mask] = expert(x[mask]) * gate[mask, None]
        return x + out


def example_inputs(batch: int = 6):
    return {"x": torch.randn(batch, 8)}
