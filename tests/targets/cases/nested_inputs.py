"""A forward that is given a dict, a dataclass and a list of tensors."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Batch:
    ids: torch.Tensor
    kinds: torch.Tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 32)
        self.kinds = nn.Embedding(4, 32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, batch: Batch, masks, extra: dict):
        x = self.table(batch.ids) + self.kinds(batch.kinds)
        x = x + self.down(torch.relu(self.up(x)))
        for mask in masks:
            x = x * mask[:, :, None]
        return (x - extra["shift"]["by"]).square().mean()


def example_inputs():
    ids, mask = torch.arange(32).reshape(4, 8) % 16, torch.ones(4, 8)
    shift = {"by": torch.zeros(4, 8, 32)}
    return {"batch": Batch(ids, ids % 4), "masks": [mask, 2 * mask], "extra": {"shift": shift}}
