"""VICReg, as its authors train it: a loss of features of all ranks."""

# pyright: basic

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.clones.parts import part

main_vicreg = part("main_vicreg")
ARGS = SimpleNamespace(batch_size=8, sim_coeff=25.0, std_coeff=25.0, cov_coeff=1.0)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.projector = nn.Linear(6, 8), nn.Linear(8, 4)
        self.args, self.num_features = ARGS, 4

    def forward(self, x, y):
        return main_vicreg.VICReg.forward(self, x, y)


def covariance(x):
    x = x - x.mean(dim=0)
    return x.T @ x / (len(x) - 1)


class One(Whole):
    def forward(self, x, y):
        x, y = self.projector(self.backbone(x)), self.projector(self.backbone(y))
        same = nn.functional.mse_loss(x, y)
        std = sum(torch.relu(1 - torch.sqrt(v.var(dim=0) + 0.0001)).mean() / 2 for v in (x, y))
        cov = sum(
            main_vicreg.off_diagonal(covariance(v)).pow(2).sum() / self.num_features for v in (x, y)
        )
        return ARGS.sim_coeff * same + ARGS.std_coeff * std + ARGS.cov_coeff * cov


def one():
    model = One()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def many(mesh):
    model = DistributedDataParallel(Whole(), process_group=mesh.get_group("dp"))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def step(model, optimizer, a, b):
    optimizer.zero_grad()
    loss = model(a, b)
    loss.backward()
    optimizer.step()
    return loss.detach()
