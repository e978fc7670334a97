"""The same modules, made parallel by PyTorch: DTensor plans, fully_shard, DDP."""

from model import MLP, Trained
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def tensor_parallel(mesh):
    return parallelize_module(MLP(), mesh, PLAN)


def sharded(mesh):
    model = Trained()
    for part in (model.up, model.down, model):
        fully_shard(part, mesh=mesh)
    return model


def sharded_and_split(mesh):
    model = parallelize_module(Trained(), mesh["tp"], PLAN)
    return fully_shard(model, mesh=mesh["dp"])


def summed(mesh):
    """Wrong: the gradients of `down` are added up where those of the others are averaged."""
    model = sharded(mesh)
    model.down.set_gradient_divide_factor(1.0)
    return model


def averaged(mesh):
    return DistributedDataParallel(Trained(), device_mesh=mesh)
