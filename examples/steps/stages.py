"""The same step in a pipeline, whose stages may be sharded over dp and tp: 1F1B, one norm over all
stages."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from deep import Layers
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module


def staged(mesh):
    pp = mesh["pp"]
    rank, size = pp.get_local_rank(), pp.size()
    each = 4 // size
    part = Layers(rank * each, (rank + 1) * each)
    if "tp" in mesh.mesh_dim_names:
        for name in ("1", "2"):
            if name in part.layers:
                gathered = ColwiseParallel(output_layouts=Replicate())
                parallelize_module(part.layers[name], mesh["tp"], gathered)
    if "dp" in mesh.mesh_dim_names:
        fully_shard(part, mesh=mesh["dp"])
    stage = PipelineStage(part, rank, size, torch.device("cpu"), group=pp.get_group())
    schedule = Schedule1F1B(stage, 2, loss_fn=F.mse_loss)
    return schedule, torch.optim.AdamW(part.parameters(), lr=1e-2)


def local(t):
    return t.to_local() if isinstance(t, DTensor) else t


def add_up_tied(stage):
    """The first and the last stage hold one weight: its gradient is the sum of theirs."""
    names = {0: "0", stage.num_stages - 1: "3"}
    weight = stage.submod.layers[names[stage.stage_index]].weight
    dist.all_reduce(local(weight.grad), group=stage.group)


def clip(stage, most):
    """A weight that two stages hold counts once."""
    held = dict(stage.submod.named_parameters())
    counted = [p.grad for name, p in held.items() if name != "layers.3.weight"]
    norms = [nn.utils.get_total_norm([grad]) for grad in counted]
    total = sum((n.full_tensor() if isinstance(n, DTensor) else n) ** 2 for n in norms)
    dist.all_reduce(total, group=stage.group)
    nn.utils.clip_grads_with_norm_(held.values(), most, total**0.5, foreach=False)


def train_step(schedule, optimizer, x, y):
    stage = schedule._stage
    optimizer.zero_grad()
    losses = []
    given = {"target": y, "losses": losses} if stage.is_last else {}
    schedule.step(*([x] if stage.is_first else []), **given)
    add_up_tied(stage)
    clip(stage, 0.1)
    optimizer.step()
    return torch.stack(losses).mean() if losses else None
