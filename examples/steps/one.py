"""A model on one device, and its training step: two micro-batches, clipping, AdamW, a schedule."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def groups(model):
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]


def sgd():
    model = MLP()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def plain_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def adamw():
    model = MLP()
    optimizer = torch.optim.AdamW(groups(model), lr=1e-3)
    return model, optimizer, CosineAnnealingLR(optimizer, 100)


def train_step(model, optimizer, schedule, x, y):
    for part, target in zip(x.chunk(2), y.chunk(2), strict=True):
        (F.mse_loss(model(part), target) / 2).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    return norm


def averaged():
    model = MLP()
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    return model, torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True), ema


def ema_step(model, optimizer, ema, x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    ema.update_parameters(model)
    return loss
