import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class DistributedDataParallel(nn.Module):
    """Hooks put gradients into buckets of a dtype, which are reduced when they are full."""

    def __init__(self, module, message_size=40, gradient_predivide_factor=2.0):
        super().__init__()
        self.module = module
        self.message_size = message_size
        self.gradient_predivide_factor = gradient_predivide_factor
        self.world_size = dist.get_world_size()
        self.bucket, self.filled, self.missing = [], 0, 0
        for p in module.parameters():
            dist.broadcast(p.detach(), 0)
            p.register_post_accumulate_grad_hook(self.comm_ready)

    def forward(self, *inputs):
        self.missing = sum(p.requires_grad for p in self.module.parameters())
        return self.module(*inputs)

    def comm_ready(self, param):
        self.bucket.append(param.grad.data)
        self.filled += param.numel()
        self.missing -= 1
        if self.filled >= self.message_size or self.missing == 0:
            self.allreduce_bucket()

    def allreduce_bucket(self):
        flat = _flatten_dense_tensors(self.bucket)
        flat.mul_(1.0 / self.gradient_predivide_factor)
        dist.all_reduce(flat)
        flat.mul_(self.gradient_predivide_factor / self.world_size)
        for buf, synced in zip(self.bucket, _unflatten_dense_tensors(flat, self.bucket)):
            buf.copy_(synced)
        self.bucket, self.filled = [], 0


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        return self.fc(nn.functional.avg_pool2d(torch.relu(self.conv(x)), 2).flatten(1))


def build(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    return model, nn.CrossEntropyLoss(), optimizer


def single():
    return build(Net())


def parallel():
    return build(DistributedDataParallel(Net()))


def reduce_tensor(tensor):
    rt = tensor.clone()
    if dist.is_initialized():
        dist.all_reduce(rt, op=dist.ReduceOp.SUM)
        rt /= dist.get_world_size()
    return rt


def train_step(model, criterion, optimizer, images, target):
    loss = criterion(model(images), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return reduce_tensor(loss.data)
