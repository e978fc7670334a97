"""lightly: losses of a batch that ranks hold in pieces, under DistributedDataParallel."""

# pyright: basic

import torch
from lightly import loss as losses
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trained(nn.Module):
    def __init__(self, kind, gathers):
        super().__init__()
        self.encoder = nn.Linear(6, 4)
        self.loss = getattr(losses, kind)(gather_distributed=gathers)

    def forward(self, a, b):
        return self.loss(self.encoder(a), self.encoder(b))


def one(kind: str):
    model = Trained(kind, False)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def many(mesh, kind: str):
    model = DistributedDataParallel(Trained(kind, True), process_group=mesh.get_group("dp"))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def step(model, optimizer, a, b):
    loss = model(a, b)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
