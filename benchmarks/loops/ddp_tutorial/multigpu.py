import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(8, 16)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(16, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


class Trainer:
    def __init__(self, model, optimizer, scheduler, accumulate):
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.accumulate = accumulate
        self.history = []

    def _forward(self, source, targets):
        output = self.model(source)
        loss = F.cross_entropy(output, targets)
        (loss / self.accumulate).backward()
        self.history.append(loss.item())

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        *first, last = zip(source.split(2), targets.split(2), strict=True)
        no_sync = getattr(self.model, "no_sync", contextlib.nullcontext)
        with no_sync():
            for xb, yb in first:
                self._forward(xb, yb)
        self._forward(*last)
        self.optimizer.step()
        self.scheduler.step()


def prepared(model, accumulate):
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    warmup = LinearLR(optimizer, start_factor=0.1, total_iters=5)
    cosine = CosineAnnealingLR(optimizer, T_max=20)
    scheduler = SequentialLR(optimizer, [warmup, cosine], milestones=[5])
    return model, Trainer(model, optimizer, scheduler, accumulate)


def single():
    return prepared(ToyModel(), 4)


def parallel():
    return prepared(DDP(ToyModel(), static_graph=False), 2)


def train_step(model, trainer, source, targets):
    trainer._run_batch(source, targets)
