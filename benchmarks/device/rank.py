"""`python -m benchmarks.device.rank PATCHED.py --mesh tp=8 --tokens 4x4096`: one rank, really run.

The model of a patch at its true extents, parallelized as rank 0 of a mesh whose other ranks are not
there: exchange sends nothing, and its buffers are real. A forward and a backward in bf16 on one
GPU; prints the bytes of parameters and gradients, the peak, and seconds of a step.
"""

# pyright: basic

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardproof.synthesis.execute.load import load_file

SHORT = {"num_hidden_layers": 1, "vocab_size": 256, "intermediate_size": 128}
"""Of a model that is built for its buffers alone."""


def local(value: Any) -> Any:
    return value.to_local() if isinstance(value, DTensor) else value


def built(module: Any, sizes: dict[str, int], changes: dict[str, Any], device: str) -> Any:
    """The parallelized model with random numbers, made on no memory before it is split."""
    with torch.device("meta"):
        model = module.build_model(**changes).to(torch.bfloat16)
    mesh = init_device_mesh(device, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    model = module.parallelize(model, mesh)
    model.to_empty(device=device)
    with torch.no_grad():
        for param in model.parameters():
            shard = local(param)
            shard.normal_(std=0.3 / max(shard.shape[-1], 1) ** 0.5)
    short = module.build_model(**{**changes, **SHORT})
    for name, buffer in short.named_buffers():
        model.get_buffer(name).copy_(buffer)
    return model


def step(model: Any, ids: torch.Tensor) -> None:
    for param in model.parameters():
        param.grad = None
    model(ids, labels=ids).loss.backward()


def measured(model: Any, ids: torch.Tensor, runs: int) -> dict[str, Any]:
    """Peak bytes and seconds of a step."""
    cuda = ids.device.type == "cuda"
    step(model, ids)
    held = sum(local(p).nbytes for p in model.parameters())
    grads = sum(local(p.grad).nbytes for p in model.parameters() if p.grad is not None)
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    spent = []
    for _ in range(runs):
        start = time.perf_counter()
        step(model, ids)
        if cuda:
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if cuda else 0
    reserved = torch.cuda.max_memory_reserved() if cuda else 0
    return {"parameters": held, "gradients": grads, "peak": peak, "reserved": reserved,
            "seconds": statistics.median(spent)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("patched", type=Path)
    parser.add_argument("--mesh", required=True)
    parser.add_argument("--tokens", required=True, help="batch x sequence, as 1x4096,4x4096")
    parser.add_argument("--changes", type=json.loads, default={})
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    sizes = {k: int(v) for k, v in (part.split("=") for part in args.mesh.split(","))}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=math.prod(sizes.values()))
    torch.manual_seed(0)
    module = load_file(args.patched)
    model = built(module, sizes, args.changes, device)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    for tokens in args.tokens.split(","):
        batch, seq = map(int, tokens.split("x"))
        ids = torch.randint(0, model.config.vocab_size, (batch, seq), device=device)
        row = {"kind": "rank", "model": args.patched.parent.name, "mesh": args.mesh}
        row |= {"tokens": tokens, "device": name, "torch": torch.__version__}
        print(json.dumps({**row, **measured(model, ids, args.runs)}), flush=True)


if __name__ == "__main__":
    main()
