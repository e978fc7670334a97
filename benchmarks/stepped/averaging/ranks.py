import copy

import torch
import torch.nn.functional as F
from one import Encoder
from torch.distributed.fsdp import fully_shard

DECAY = 0.995


def shard(model, mesh):
    for layer in (model.proj_in, model.mid, model.proj_out):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def build(mesh):
    model = Encoder()
    ema = copy.deepcopy(model).requires_grad_(False)
    model, ema = shard(model, mesh), shard(ema, mesh)
    return model, torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9), ema


def train_step(model, optim, ema, x, target):
    loss = F.mse_loss(model(x), target)
    optim.zero_grad()
    loss.backward()
    optim.step()
    with torch.no_grad():
        for e, p in zip(ema.parameters(), model.parameters(), strict=True):
            e.lerp_(p, 1 - DECAY)
    return ema.proj_in.weight.clone()
