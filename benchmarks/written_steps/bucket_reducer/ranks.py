import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

LR = 0.05
BUCKET_NUMEL = 400


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 16), nn.LayerNorm(16))
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        return self.out(torch.tanh(self.enc(x)))


def make_buckets(params):
    buckets, current, size = [], [], 0
    for p in reversed(params):
        current.append(p)
        size += p.numel()
        if size >= BUCKET_NUMEL:
            buckets.append(current)
            current, size = [], 0
    if current:
        buckets.append(current)
    return buckets


class Reducer:
    def __init__(self, params):
        self.buckets = make_buckets(list(params))
        self.world = dist.get_world_size()

    def pack(self, bucket):
        return torch.cat([p.grad.reshape(-1) for p in bucket])

    def unpack(self, flat, bucket):
        offset = 0
        for p in bucket:
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()

    def reduce(self):
        pending = []
        for bucket in self.buckets:
            flat = self.pack(bucket)
            pending.append((dist.all_reduce(flat, async_op=True), flat, bucket))
        for handle, flat, bucket in pending:
            handle.wait()
            flat.div_(self.world)
            self.unpack(flat, bucket)


def build():
    net = Regressor()
    opt = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, nesterov=True, weight_decay=1e-2)
    return net, Reducer(net.parameters()), opt


def train_step(net, reducer, opt, x, y):
    loss = F.mse_loss(net(x), y)
    loss.backward()
    reducer.reduce()
    opt.step()
    opt.zero_grad()
    return loss.detach()
