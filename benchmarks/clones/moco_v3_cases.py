"""MoCo v3: a contrastive loss against keys of all ranks, of an encoder that follows by momentum."""

# pyright: basic

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.clones.parts import part

builder = part("moco.builder")


def encoder(num_classes: int):
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, num_classes))


class MoCo(builder.MoCo):
    def _build_projector_and_predictor_mlps(self, dim, mlp_dim):
        self.predictor = nn.Linear(mlp_dim, mlp_dim)

    def forward(self, x1, x2):
        return super().forward(x1, x2, 0.9)


class One(MoCo):
    def contrastive_loss(self, q, k):
        q, k = (nn.functional.normalize(x, dim=1) for x in (q, k))
        logits = torch.einsum("nc,mc->nm", [q, k]) / self.T
        labels = torch.arange(logits.shape[0], dtype=torch.long)
        return nn.CrossEntropyLoss()(logits, labels) * (2 * self.T)


def one():
    model = One(encoder, dim=4, mlp_dim=4, T=0.2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def many(mesh):
    model = MoCo(encoder, dim=4, mlp_dim=4, T=0.2)
    model = DistributedDataParallel(model, process_group=mesh.get_group("dp"))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def step(model, optimizer, a, b):
    optimizer.zero_grad()
    loss = model(a, b)
    loss.backward()
    optimizer.step()
    return loss.detach()
