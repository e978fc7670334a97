from contextlib import nullcontext

import torch
import torch.distributed as dist
from one import make_model
from torch.nn.parallel import DistributedDataParallel as DDP

GRAD_ACCUM_STEPS = 4
MAX_NORM = 0.5


def setup():
    model = DDP(make_model())
    return model, torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=0.01)


def clip_gradients(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    total = torch.zeros(())
    for g in grads:
        total = total + g.pow(2).sum()
    coef = max_norm / (total.sqrt() + 1e-6)
    coef = torch.clamp(coef, max=1.0)
    for g in grads:
        g.mul_(coef)


def train_step(model, optim, inputs, targets):
    losses = []
    batches = zip(
        inputs.split(inputs.size(0) // GRAD_ACCUM_STEPS),
        targets.split(targets.size(0) // GRAD_ACCUM_STEPS),
        strict=True,
    )
    for step, (a, b) in enumerate(batches):
        sync = step == GRAD_ACCUM_STEPS - 1
        ctx = nullcontext() if sync else model.no_sync()
        with ctx:
            loss = ((model(a) - b) ** 2).mean()
            loss = loss / GRAD_ACCUM_STEPS
            loss.backward()
        losses.append(loss.detach())
    clip_gradients(model.parameters(), MAX_NORM)
    optim.step()
    optim.zero_grad()
    mean = torch.stack(losses).sum()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG if mean.is_cuda else dist.ReduceOp.SUM)
    return mean / dist.get_world_size()
