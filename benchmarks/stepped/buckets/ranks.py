import torch
import torch.distributed as dist
from one import Regressor
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

BUCKET_SIZE = 150


def create():
    model = Regressor()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.8, nesterov=True, weight_decay=1e-3
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
    return model, optimizer, scheduler


def make_buckets(params):
    buckets, size = [[]], 0
    for p in reversed(list(params)):
        if size + p.numel() > BUCKET_SIZE and buckets[-1]:
            buckets.append([])
            size = 0
        buckets[-1].append(p)
        size += p.numel()
    return buckets


def average_gradients(model):
    handles = []
    for bucket in make_buckets(model.parameters()):
        grads = [p.grad for p in bucket]
        flat = _flatten_dense_tensors(grads)
        flat /= dist.get_world_size()
        work = dist.all_reduce(flat, async_op=True)
        handles.append((work, flat, grads))
    for work, flat, grads in handles:
        work.wait()
        for grad, new in zip(grads, _unflatten_dense_tensors(flat, grads), strict=True):
            grad.copy_(new)


def train_step(model, optimizer, scheduler, data, label):
    optimizer.zero_grad()
    criterion = nn.MSELoss()
    loss = criterion(model(data), label)
    loss.backward()
    average_gradients(model)
    optimizer.step()
    scheduler.step()
    loss = loss.detach().clone()
    dist.all_reduce(loss)
    return loss / dist.get_world_size()
