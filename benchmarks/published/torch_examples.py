"""What PyTorch's examples of tensor parallelism, sequence parallelism, FSDP with tensor parallelism
and DDP do, written anew, and the modules on one device."""

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.functional import relu, silu, softmax
from torch.nn.parallel import DistributedDataParallel


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(8, 16)
        self.out_proj = nn.Linear(16, 4)

    def forward(self, x):
        return self.out_proj(relu(self.in_proj(x)))


class Trained(Toy):
    def forward(self, x):
        return {"loss": super().forward(x).pow(2).mean()}


def tensor_parallel(model, mesh):
    plan = {"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()}
    parallelize_module(model, mesh, plan)


def sequence_parallel(model, mesh):
    plan = {
        "in_proj": ColwiseParallel(input_layouts=Shard(0)),
        "out_proj": RowwiseParallel(output_layouts=Shard(0)),
    }
    parallelize_module(model, mesh, plan)


class Layer(nn.Module):
    def __init__(self, hidden=8, heads=2):
        super().__init__()
        self.heads = heads
        self.norm, self.ffn_norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(hidden, hidden, bias=False) for _ in range(4)
        )
        self.w1, self.w3 = (nn.Linear(hidden, 2 * hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(2 * hidden, hidden, bias=False)

    def forward(self, x):
        h = x + self.attended(self.norm(x))
        n = self.ffn_norm(h)
        return h + self.w2(silu(self.w1(n)) * self.w3(n))

    def attended(self, x):
        q, k, v = (w(x) for w in (self.wq, self.wk, self.wv))
        q, k, v = (t.unflatten(-1, (-1, 4)).transpose(1, 2) for t in (q, k, v))
        y = softmax(q @ k.transpose(2, 3) / 2, -1) @ v
        return self.wo(y.transpose(1, 2).flatten(2))


class Small(nn.Module):
    """One layer, and a loss."""

    def __init__(self):
        super().__init__()
        self.layer = Layer()
        self.out = nn.Linear(8, 4, bias=False)

    def forward(self, x):
        return {"loss": self.out(self.layer(x)).pow(2).mean()}


def split_and_sharded(model, mesh):
    """Tensor parallelism in the layer, then fully_shard over the other mesh dim."""
    plan = dict.fromkeys(("wq", "wk", "wv", "w1", "w3"), ColwiseParallel())
    plan |= dict.fromkeys(("wo", "w2"), RowwiseParallel())
    parallelize_module(model.layer, mesh["tp"], plan)
    fully_shard(model, mesh=mesh["dp"])


MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def sharded(model, mesh):
    for part in (model.in_proj, model.out_proj, model):
        fully_shard(part, mesh=mesh, mp_policy=MIXED)


def block_sharded(model, mesh):
    for part in (model.layer, model):
        fully_shard(part, mesh=mesh, mp_policy=MIXED)


def sharded_and_repeated(model, mesh):
    """Sharded in a group, repeated over groups (HSDP)."""
    for part in (model.in_proj, model.out_proj, model):
        fully_shard(part, mesh=mesh["replica", "dp"])


def summed(model, mesh):
    """Gradients are added up where they are to be averaged."""
    sharded(model, mesh)
    model.in_proj.set_gradient_divide_factor(1.0)


def averaged(model, mesh):
    return DistributedDataParallel(model, device_mesh=mesh)
