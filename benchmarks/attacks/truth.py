"""`python -m benchmarks.attacks.truth`: programs on gloo in float64 beside one process.

Reads a line of JSON a program, {"file", "command", "mesh", "options"}, and answers with one. It
imports PyTorch alone, and shares nothing with the verifier.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch._dynamo
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

WAIT, ALARM = 5, 25
CLOSE = 1e-9
CALLS = 3
DENSE = ("all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "reduce_scatter_tensor")
ZEROS = 2
"""A seed with which half of the rows of parameters are zero: entries that no draw hits, such as a
cast to bool tells apart."""
RUNS = [(m, g, s) for s in (0, 1) for m in ("train", "eval") for g in (True, False)]
RUNS += [("eval", True, ZEROS)]
"""Mode, whether gradients are on, and the seed."""

Found = dict[str, list[Any]]


def seeded(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def imported(file: str) -> Any:
    """Anew: what the file keeps starts again."""
    spec = importlib.util.spec_from_file_location("program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["program"] = module
    spec.loader.exec_module(module)
    return module


def piece(whole: torch.Tensor, like: torch.Tensor, rank: int) -> torch.Tensor:
    """The part of `whole` that a rank of one mesh dim has, by the shapes."""
    for dim, (a, b) in enumerate(zip(whole.shape, like.shape, strict=True)):
        if a != b:
            return whole.chunk(a // b, dim)[rank]
    return whole


def whole(t: torch.Tensor) -> torch.Tensor:
    return t.full_tensor() if isinstance(t, DTensor) else t


def split(values: Mapping[str, torch.Tensor], layouts: list[str], rank: int, size: int) -> Any:
    named = {item.split("=")[0] for item in layouts}
    return {k: v.chunk(size)[rank].clone() if k in named else v for k, v in values.items()}


def built(module: Any, mesh: Any, seed: int, command: str) -> tuple[Any, Any]:
    seeded(seed)
    model = module.M()
    draw = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.data.copy_(torch.randn(p.shape, generator=draw) * 0.6)
        if seed == ZEROS:
            p.data[torch.rand(len(p), generator=draw) < 0.5] = 0
    seeded(seed)
    if command == "parallelize":
        return model, module.parallelize(copy.deepcopy(model), mesh)
    takes = inspect.signature(module.P).parameters
    ranks = module.P(**({"mesh": mesh} if "mesh" in takes else {}))
    return model, ranks


def load(model: Any, ranks: Any, rank: int) -> None:
    given = dict(model.named_parameters())
    with torch.no_grad():
        for name, p in ranks.named_parameters():
            value = given[_name(name)].detach()
            if isinstance(p, DTensor):
                p.to_local().copy_(distribute_tensor(value, p.device_mesh, p.placements).to_local())
            else:
                p.copy_(piece(value, p, rank))


def _name(name: str) -> str:
    return name.removeprefix("module.").replace("_orig_mod.", "")


def leaves(result: Any) -> list[torch.Tensor]:
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, tuple | list) else [result]


def differs(want: torch.Tensor | None, got: torch.Tensor | None) -> bool:
    if want is None or got is None:
        some = want if got is None else got
        return some is not None and bool(some.abs().max() > CLOSE)
    want, got = torch.broadcast_tensors(want, got)
    defined = want.isfinite()
    want, got = want[defined], got[defined]
    if not want.numel():
        return False
    gap = (want - got).abs().max() / (1 + want.abs().max())
    return not bool(gap < CLOSE)


def drawn(module: Any, seed: int) -> dict[str, torch.Tensor]:
    seeded(seed)
    return module.example_inputs()


def one_run(given: Any, mesh: Any, run: tuple[str, bool, int], rank: int, found: Found) -> None:
    """Three calls of one pair of modules; what differs is noted by call and by what it is of."""
    mode, gradients, seed = run
    size, dp = mesh.size(), "dp" in given["mesh"]
    module = imported(given["file"])
    model, ranks = built(module, mesh, seed, given["command"])
    if given["command"] == "check":
        load(model, ranks, rank)
    model.train(mode == "train")
    ranks.train(mode == "train")
    layouts = given["options"].get("input_layout", [])
    if given["command"] == "parallelize" and dp:
        layouts = [f"{name}=" for name in drawn(module, 0)]

    def differ(call: int, of: str) -> None:
        found["differs"].append([mode, gradients, seed, call, of])

    for call in range(CALLS):
        inputs = drawn(module, 100 * seed + call)
        sides: list[Any] = []
        for side in (model, ranks):
            own = inputs if side is model else split(inputs, layouts, rank, size)
            own = {
                k: v.clone().requires_grad_(gradients) if v.is_floating_point() else v.clone()
                for k, v in own.items()
            }
            for p in side.parameters():
                p.grad = None
            seeded(1000 * seed + call)
            try:
                with torch.set_grad_enabled(gradients):
                    outputs = leaves(
                        side(**{k: v * 1 if v.is_floating_point() else v for k, v in own.items()})
                    )
                    if gradients:
                        total: Any = 0
                        draw = torch.Generator().manual_seed(5)
                        for t in outputs:
                            t = whole(t)
                            if not t.requires_grad:
                                continue
                            full = torch.randn(t.shape, generator=draw)
                            total = total + (t if t.ndim == 0 else (t * full).sum())
                        if not isinstance(total, int):
                            total.backward()
            except Exception as problem:
                if side is model:
                    found["alone"].append(f"{type(problem).__name__}: {problem}"[:200])
                raise
            sides.append((outputs, own))
        (want, given_want), (got, given_got) = sides
        for a, b in zip(want, got, strict=True):
            a, b = a.detach(), whole(b.detach()).clone()
            if dp and b.ndim == 0:
                dist.all_reduce(b)
                b /= size
            if differs(piece(a, b, rank), b):
                differ(call, "output")
        if not gradients:
            continue
        of = {n: p.grad for n, p in model.named_parameters()}
        for name, p in ranks.named_parameters():
            a, b = of[_name(name)], p.grad
            b = None if b is None else whole(b)
            if a is not None and b is not None:
                a = piece(a, b, rank)
            if differs(a, b):
                differ(call, f"gradient of {name}")
        if not dp:
            for name, t in given_want.items():
                if t.is_floating_point() and differs(t.grad, given_got[name].grad):
                    differ(call, f"gradient of {name}")


def as_nccl_asks() -> None:
    """From now on, collectives raise as NCCL does where memory has gaps, which gloo takes."""
    for name in DENSE:
        setattr(dist, name, _asking(name, getattr(dist, name)))


def _has_gaps(t: torch.Tensor) -> bool:
    step = 1
    for stride, extent in sorted(zip(t.stride(), t.shape, strict=True)):
        if extent != 1 and stride != step:
            return True
        step *= extent
    return False


def _asking(name: str, function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        for t in (*args, *kwargs.values()):
            if isinstance(t, torch.Tensor) and _has_gaps(t):
                raise ValueError(f"NCCL: {name} of a tensor that has gaps in memory")
        return function(*args, **kwargs)

    return call


def rank_of(given: Any, rank: int, size: int, store: str, out: int) -> None:
    """One process: its findings as a line."""
    found: Found = {"differs": [], "alone": [], "error": []}
    signal.alarm(ALARM)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=size,
            timeout=timedelta(seconds=WAIT),
        )  # fmt: skip
        name, extent = given["mesh"].split("=")
        mesh = init_device_mesh("cpu", (int(extent),), mesh_dim_names=(name,))
        torch.set_default_dtype(torch.float64)
        kept = dict(os.environ)
        for run in RUNS:
            os.environ.clear()
            os.environ.update(kept)
            one_run(given, mesh, run, rank, found)
    except BaseException as problem:  # noqa: BLE001 a rank that ends in any way is broken
        found["error"].append(f"{type(problem).__name__}: {problem}"[:300])
    os.write(out, (json.dumps(found) + "\n").encode())
    os._exit(0)


def truth(given: Any) -> dict[str, Any]:
    """`right`, `wrong`, `broken` where a rank fails or waits for ever, and `alone`
    where the model does."""
    size = int(given["mesh"].split("=")[1])
    folder = tempfile.mkdtemp()
    read, write = os.pipe()
    pids: list[int] = []
    for rank in range(size):
        pid = os.fork()
        if not pid:
            os.close(read)
            rank_of(given, rank, size, f"{folder}/store", write)
        pids.append(pid)
    os.close(write)
    with os.fdopen(read) as lines:
        said = [json.loads(line) for line in lines]
    for pid in pids:
        os.waitpid(pid, 0)
    shutil.rmtree(folder, ignore_errors=True)
    differ = sorted({json.dumps(d[:4]) for found in said for d in found["differs"]})
    of = sorted({d[4] for found in said for d in found["differs"]})
    errors = [e for found in said for e in found["error"]]
    if any(found["alone"] for found in said):
        word, errors = "alone", [e for found in said for e in found["alone"]]
    elif differ:
        word = "wrong"
    else:
        word = "broken" if errors or len(said) < size else "right"
    return {"truth": word, "where": [json.loads(d) for d in differ], "of": of, "error": errors[:1]}


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    as_nccl_asks()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(truth(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
