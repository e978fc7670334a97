"""Modules that PyTorch's own parallel code makes, as their users write them, and the model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.functional import linear
from torch.nn.parallel import DistributedDataParallel

from shardproof.runtime import ChannelParallel, ProductParallel, SharedOutput, own_pieces


class MLP(nn.Module):
    def __init__(self, hidden=8, inner=16):
        super().__init__()
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class LossMLP(MLP):
    def forward(self, x):
        return {"loss": super().forward(x).pow(2).mean()}


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mlp = MLP()

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.g = nn.Parameter(torch.ones(width))

    def forward(self, x):
        far = x - x.mean(-1, keepdim=True)
        return far * (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt() * self.g


class Inner(MLP):
    def __init__(self):
        super().__init__()
        self.norm = Scale(16)

    def forward(self, x):
        return self.down(self.norm(torch.relu(self.up(x))))


class Between(nn.Module):
    """A convolution reads channels that another takes up with what it gives."""

    def __init__(self):
        super().__init__()
        self.up, self.mid = nn.Conv1d(2, 4, 1), nn.Conv1d(4, 4, 3, padding=1)
        self.down = nn.Conv1d(4, 2, 1)

    def forward(self, x):
        wide = torch.relu(self.up(x.view(2, 2, 8)))
        return self.down(wide + self.mid(wide))


class Pick(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 8))

    def forward(self, x, target):
        return linear(x, self.weight).gather(1, target[:, None])[:, 0]


class Placed(nn.Module):
    def __init__(self, first=0):
        super().__init__()
        self.first = first
        self.places = nn.Embedding(6, 8)

    def forward(self, x):
        return x + self.places(torch.arange(self.first, self.first + 4))


def example_inputs():
    return {"x": torch.randn(4, 8)}


PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def tensor_parallel(mesh):
    return parallelize_module(MLP(), mesh, PLAN)


def dtensor_output(mesh):
    plan = {**PLAN, "down": RowwiseParallel(use_local_output=False)}
    return parallelize_module(MLP(), mesh, plan)


def split_output(mesh):
    plan = {"up": ColwiseParallel(input_layouts=Shard(0))}
    plan["down"] = RowwiseParallel(output_layouts=Shard(0))
    return parallelize_module(MLP(), mesh, plan)


def sequence_parallel(mesh):
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "mlp.up": ColwiseParallel(input_layouts=Shard(0)),
        "mlp.down": RowwiseParallel(output_layouts=Shard(0)),
    }
    return parallelize_module(Normed(), mesh, plan)


def places_by_rank(mesh, first=0):
    rows = RowwiseParallel(input_layouts=Replicate())
    return parallelize_module(Placed(first), mesh, {"places": rows})


def later_places(mesh):
    return places_by_rank(mesh, 1)


def inner_norm(mesh):
    features = {"input_layouts": Shard(-1), "output_layouts": Shard(-1)}
    norm = ProductParallel({"g": 0}, **features)
    return parallelize_module(Inner(), mesh, {**PLAN, "norm": norm})


def norm_added_up(mesh):
    """What it gives is split, and its gradient is added up as if it were whole."""
    features = {"input_layouts": Shard(-1), "output_layouts": Shard(-1)}
    norm = SharedOutput(ProductParallel({"g": 0}, **features))
    return parallelize_module(Inner(), mesh, {**PLAN, "norm": norm})


def norm_of_pieces(mesh):
    """Each rank takes mean and variance over its own features."""
    model = parallelize_module(Inner(), mesh, PLAN)
    own_pieces(model.norm, mesh, {"g": 0})
    return model


OUT, ENDS = (
    {"weight": 0, "bias": 0},
    {
        "up": ChannelParallel({"weight": 0, "bias": 0}, output_layouts=Shard(1)),
        "down": ChannelParallel({"weight": 1}, input_layouts=Shard(1)),
    },
)


def gathers_between(mesh):
    mid = ChannelParallel(OUT, input_layouts=Shard(1), output_layouts=Shard(1))
    return parallelize_module(Between(), mesh, {**ENDS, "mid": mid})


def gathers_shares(mesh):
    """The gradient of the gathered channels is a share on each rank, and is not added up."""
    model = parallelize_module(Between(), mesh, ENDS)
    own_pieces(model.mid, mesh, OUT)

    def whole(module, args):
        split = DTensor.from_local(args[0], mesh, [Shard(1)], run_check=False)
        return split.redistribute(placements=[Replicate()]).to_local()

    model.mid.register_forward_pre_hook(whole)
    return model


class Doubled(ColwiseParallel):
    """A style whose input is gathered a second time, by hand, as a sum."""

    @staticmethod
    def _prepare_input_fn(layouts, desired, module, inputs, mesh):
        x = inputs[0].clone()
        dist.all_reduce(x, group=mesh.get_group())
        return ColwiseParallel._prepare_input_fn(layouts, desired, module, (x,), mesh)


def summed_input(mesh):
    return parallelize_module(MLP(), mesh, {"up": Doubled(), "down": RowwiseParallel()})


def _sharded(mesh, **options):
    model = LossMLP()
    for part in (model.up, model.down, model):
        fully_shard(part, mesh=mesh, **options)
    return model


def sharded(mesh):
    return _sharded(mesh)


def sharded_in_bf16(mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return _sharded(mesh, mp_policy=policy)


def kept_after_forward(mesh):
    return _sharded(mesh, reshard_after_forward=False)


def summed_gradients(mesh):
    model = _sharded(mesh)
    for part in (model.up, model.down):
        part.set_gradient_divide_factor(1.0)
    return model


def sharded_and_split(mesh):
    model = parallelize_module(LossMLP(), mesh["tp"], PLAN)
    return fully_shard(model, mesh=mesh["dp"])


def averaged(mesh):
    return DistributedDataParallel(LossMLP(), device_mesh=mesh)


def averaged_with_a_hook(mesh):
    model = DistributedDataParallel(LossMLP(), device_mesh=mesh)
    model.register_comm_hook(None, lambda state, bucket: bucket)
    return model


def doubled(p):
    p.grad.mul_(2)


def averaged_after_a_hook(mesh):
    inner = LossMLP()
    inner.up.weight.register_post_accumulate_grad_hook(doubled)
    return DistributedDataParallel(inner, device_mesh=mesh)


def averaged_before_a_hook(mesh):
    model = averaged(mesh)
    model.module.up.weight.register_post_accumulate_grad_hook(doubled)
    return model


class Wrapper(nn.Module):
    """Reduces gradients by hooks, and takes whatever the module takes."""

    def __init__(self, group):
        super().__init__()
        self.module = LossMLP()

        def average(p):
            dist.all_reduce(p.grad, group=group)
            p.grad /= group.size()

        for p in self.module.parameters():
            p.register_post_accumulate_grad_hook(average)

    def forward(self, *args):
        return self.module(*args)


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class SplitPick(nn.Module):
    """Megatron's way to read the entries of labels from logits split over the vocabulary."""

    def __init__(self, tp_group):
        super().__init__()
        self.group, self.rows = tp_group, 16 // tp_group.size()
        self.weight = nn.Parameter(torch.randn(self.rows, 8))

    def forward(self, x, target):
        logits = linear(x, self.weight)
        own = target - self.group.rank() * self.rows
        mask = (own < 0) | (own >= self.rows)
        own = own.masked_fill(mask, 0)
        found = logits[torch.arange(len(own)), own]
        return _Reduce.apply(found.masked_fill(mask, 0.0), self.group)


class _InTwo(torch.autograd.Function):
    """Two reductions in flight, on halves of one buffer."""

    @staticmethod
    def forward(ctx, y, group, last):
        y = y.contiguous()
        first = dist.all_reduce(y[:2], group=group, async_op=True)
        second = dist.all_reduce(y[last:], group=group, async_op=True)
        first.wait()
        second.wait()
        return y

    @staticmethod
    def backward(ctx, g):
        return g, None, None


class InTwo(nn.Module):
    last = 2

    def __init__(self, tp_group):
        super().__init__()
        self.group, size = tp_group, tp_group.size()
        self.up, self.down = nn.Linear(8, 16 // size), nn.Linear(16 // size, 8)

    def forward(self, x):
        y = linear(torch.relu(self.up(x)), self.down.weight)
        return _InTwo.apply(y, self.group, self.last) + self.down.bias


class Overlapping(InTwo):
    last = 1


class SetData(nn.Module):
    """A weight that is set after the parameter was made."""

    def __init__(self, tp_group):
        super().__init__()
        size = tp_group.size()
        self.up, self.down = nn.Linear(8, 16 // size), nn.Linear(16 // size, 8)
        self.up.weight.data = torch.randn(16, 8).chunk(size)[tp_group.rank()].contiguous()
        self.group = tp_group

    def forward(self, x):
        y = linear(torch.relu(self.up(x)), self.down.weight)
        return _Reduce.apply(y, self.group) + self.down.bias
