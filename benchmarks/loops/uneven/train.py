from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Net(nn.Module):
    def __init__(self, inputs=6, hidden=8, classes=5):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc2(F.silu(self.norm(self.fc1(x))))


class Trainer:
    """The last micro-batch holds what is left, and counts for as many rows."""

    def __init__(self, model, distributed, micro_batch=2):
        self.model = model
        self.distributed = distributed
        self.micro_batch = micro_batch
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        inner = model.module if distributed else model
        self.ema = AveragedModel(inner, multi_avg_fn=get_ema_multi_avg_fn(0.99))

    def no_sync(self, last):
        return self.model.no_sync() if self.distributed and not last else nullcontext()

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        starts = range(0, len(x), self.micro_batch)
        for start in starts:
            rows = slice(start, start + self.micro_batch)
            with self.no_sync(last=start == starts[-1]):
                loss = F.cross_entropy(self.model(x[rows]), y[rows], label_smoothing=0.1)
                (loss * len(x[rows]) / len(x)).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.optimizer.step()
        self.ema.update_parameters(self.model.module if self.distributed else self.model)


def single():
    model = Net()
    return model, Trainer(model, False, micro_batch=4)


def parallel():
    model = DistributedDataParallel(Net(), gradient_as_bucket_view=True)
    return model, Trainer(model, dist.is_initialized())


def train_step(model, trainer, x, y):
    trainer.step(x, y)
