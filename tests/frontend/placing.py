"""Places parameters as PyTorch does, and says what each rank then holds, and which layout is read.

Run as `python placing.py CASES`, JSON: a list of {mesh, shape, tp, dp}; `tp` is a list of (dim,
split factor) or null, `dp` the dim that fully_shard splits or null. Prints, for each case and rank,
the numbers of the elements that the rank holds, and the layout, or the error.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch._dynamo  # else each process imports it
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.build import join_world
from shardproof.synthesis.frontends.torch.ranks.dtensors import layout_of
from shardproof.verifier.kernel.contract import layout_to_json
from shardproof.verifier.kernel.program.types import Mesh


def placed(case: dict[str, Any], world: Any, mesh: Mesh, rank: int) -> dict[str, Any]:
    """What one rank holds of a parameter whose elements are their own numbers."""
    whole = torch.arange(float(torch.Size(case["shape"]).numel())).reshape(case["shape"])
    model = nn.Module()
    value: Any = whole
    if case["tp"] is not None:
        dim, factor = case["tp"]
        split = Shard(dim) if factor == 1 else _StridedShard(dim, split_factor=factor)
        value = distribute_tensor(whole, world["tp"], [split], src_data_rank=None)
    model.weight = nn.Parameter(value)
    if case["dp"] is not None:
        fully_shard(model, mesh=world["dp"], shard_placement_fn=lambda _: Shard(case["dp"]))
    held: Any = model.weight
    local = getattr(held, "_local_tensor", held)
    found = {"held": local.reshape(-1).tolist(), "shape": list(local.shape)}
    try:
        return {**found, "layout": layout_to_json(layout_of(held, mesh, rank, "weight"))}
    except CaptureError as error:
        return {**found, "error": str(error)}


def alone(cases: list[dict[str, Any]], mesh: Mesh, rank: int) -> list[dict[str, Any]]:
    """In a process of its own: PyTorch remembers coordinates of the mesh."""
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        os.close(source)
        world = join_world(mesh, rank)["mesh"]
        with os.fdopen(sink, "w") as out:
            out.write(json.dumps([placed(case, world, mesh, rank) for case in cases]))
        os._exit(0)
    os.close(sink)
    with os.fdopen(source) as given:
        text = given.read()
    os.waitpid(child, 0)
    return json.loads(text)


def main(cases: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """For each case what its ranks say; one process does all cases of a rank of a mesh."""
    found: list[list[dict[str, Any]]] = [[] for _ in cases]
    sizes = [tuple((name, size) for name, size in case["mesh"]) for case in cases]
    for dims in dict.fromkeys(sizes):
        mesh, here = Mesh(dims), [i for i, other in enumerate(sizes) if other == dims]
        for rank in range(mesh.size):
            for i, said in zip(here, alone([cases[i] for i in here], mesh, rank), strict=True):
                found[i].append(said)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(json.loads(sys.argv[1]))))
