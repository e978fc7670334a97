"""One process's part of a run: the reference, or one rank that compares itself with it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode

from synthesis.execute.job import Job
from synthesis.execute.load import make_inputs, open_target, patched_model, rows
from verifier.frontend.inputs import find_inputs

NOISE = 1e-6


class Promote(TorchFunctionMode):
    """Computes in `dtype` where code asks for float32 by name, or for no dtype at all."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.before = torch.get_default_dtype()

    def __enter__(self) -> Any:
        torch.set_default_dtype(self.dtype)
        return super().__enter__()

    def __exit__(self, *problem: Any) -> Any:
        torch.set_default_dtype(self.before)
        leave: Any = getattr(super(), "__exit__")  # noqa: B009  (torch says no types of it)
        return leave(*problem)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.float:
            return args[0].to(self.dtype)
        narrow = torch.float32
        args = tuple(self.dtype if a is narrow else a for a in args)
        kwargs = {k: self.dtype if v is narrow else v for k, v in kwargs.items()}
        return func(*args, **kwargs)


def randomize(model: torch.nn.Module, seed: int) -> None:
    """Give every parameter values that a wrong rank or a wrong sum cannot hide behind."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in dict.fromkeys(model.parameters()):
            noise = torch.randn(param.shape, generator=generator, dtype=torch.float64)
            scale = 0.3 / param.shape[-1] ** 0.5 if param.ndim > 1 else 0.1
            base = 1.0 if param.ndim == 1 and bool((param == 1).all()) else 0.0
            param.copy_(base + scale * noise)


def named_outputs(output: Any) -> dict[str, torch.Tensor]:
    """Tensors of a model's result: fields of a ModelOutput, items of a tuple, or `output`."""
    if isinstance(output, torch.Tensor):
        return {"output": output}
    items = output.items() if hasattr(output, "items") else enumerate(output)
    return {str(k): v for k, v in items if isinstance(v, torch.Tensor)}


def step(model: torch.nn.Module, inputs: dict[str, Any], share: tuple[int, int]) -> dict[str, Any]:
    """Forward and backward; returns outputs and `loss` (detached).

    Without a scalar output the loss is a fixed random combination of the outputs. `share` is this
    rank's place among the data-parallel ranks and their number: gradients are averaged over them.
    """
    index, count = share
    outputs = named_outputs(model(**inputs))
    scalars = [name for name, v in outputs.items() if v.ndim == 0 and v.is_floating_point()]
    if scalars:
        loss = outputs.pop(scalars[0])
    else:
        loss = torch.zeros((), dtype=next(model.parameters()).dtype)
        for name, value in outputs.items():
            if value.is_floating_point():
                generator = torch.Generator().manual_seed(len(name))
                whole = (value.shape[0] * count, *value.shape[1:])
                weight = torch.randn(whole, generator=generator, dtype=torch.float64)
                loss = loss + count * (value * weight.chunk(count)[index].to(value.dtype)).sum()
    cast(Any, loss).backward()
    return {**{k: v.detach() for k, v in outputs.items()}, "loss": loss.detach()}


def reference_run(job: Job, folder: Path) -> None:
    """One process, the unpatched model: saves weights, inputs, outputs and gradients."""
    dtype = getattr(torch, job.dtype)
    cast(Any, torch).manual_seed(job.seed)
    target, _ = open_target(job.request)
    model = target.build().to(dtype).eval()
    randomize(model, job.seed)
    found = find_inputs(job.request, target, model)
    inputs = make_inputs(found, job.seed, dtype)
    with Promote(dtype):
        outputs = step(model, inputs, (0, 1))
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    (folder / "loss.json").write_text(json.dumps(outputs["loss"].item()))
    data = {"outputs": outputs, "gradients": gradients, "inputs": inputs}
    torch.save({**data, "state": model.state_dict()}, folder / "reference.pt")


def _row(
    kind: str, name: str, got: torch.Tensor, want: torch.Tensor, floor: float = 0.0
) -> dict[str, Any]:
    if got.shape != want.shape:
        shapes = f"shape {list(got.shape)}, one process has {list(want.shape)}"
        raise AssertionError(f"{kind} {name}: {shapes}")
    absolute = (got - want).abs().max().item() if want.numel() else 0.0
    scale = max(want.abs().max().item() if want.numel() else 0.0, floor)
    relative = absolute / scale if scale else absolute
    return {
        "kind": kind,
        "name": name,
        "relative": relative if relative == relative else float("inf"),
        "absolute": absolute,
    }


def _part(want: torch.Tensor, got: torch.Tensor, ranks: tuple[int, int, int, int]) -> torch.Tensor:
    """The rows (and the vocabulary slice, where outputs stay sharded) that this rank holds."""
    dp, dp_size, tp, tp_size = ranks
    if want.ndim and got.shape[0] * dp_size == want.shape[0]:
        want = want.chunk(dp_size)[dp]
    for dim, extent in enumerate(got.shape):
        if extent * tp_size == want.shape[dim] and extent != want.shape[dim]:
            want = want.chunk(tp_size, dim)[tp]
    return want


def rank_run(job: Job, folder: Path, rank: int, size: int) -> None:
    """One rank: builds the patched model, parallelizes it, runs it, writes `rank<n>.json`."""
    dtype = getattr(torch, job.dtype)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=size
    )
    plan = job.plan
    sizes = tuple(extent for _, extent in plan.mesh.dims)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=plan.mesh.names)
    dp, tp = (mesh[dim].get_local_rank() if dim else 0 for dim in (plan.dp, plan.tp))
    dp_size, tp_size = plan.dp_size, plan.tp_size
    reference = torch.load(folder / "reference.pt", weights_only=False)
    built, parallelize = patched_model(job, folder / "tree")
    model = built.to(dtype).eval()
    model.load_state_dict(reference["state"])
    model = parallelize(model, mesh)
    inputs = rows(reference["inputs"], dp, dp_size)
    with Promote(dtype):
        outputs = step(model, inputs, (dp, dp_size))
    table: list[dict[str, Any]] = []
    loss = outputs.pop("loss").clone()
    if isinstance(loss, DTensor):
        loss = loss.full_tensor()
    cast(Any, dist).all_reduce(loss)
    whole = reference["outputs"].pop("loss")
    scale = size if whole.shape == loss.shape else 1
    table.append(_row("loss", "loss", loss / scale, whole))
    for name, want in reference["outputs"].items():
        got = outputs[name]
        got = got.full_tensor() if isinstance(got, DTensor) else got
        table.append(_row("output", name, got, _part(want, got, (dp, dp_size, tp, tp_size))))
    floor = NOISE * max(g.abs().max().item() for g in reference["gradients"].values())
    params = dict(model.named_parameters())
    for name, want in reference["gradients"].items():
        got = params[name].grad
        if got is None:
            raise AssertionError(f"parameter {name} has no gradient on rank {rank}")
        got = got.full_tensor() if isinstance(got, DTensor) else got
        table.append(_row("gradient", name, got, want, floor))
    (folder / f"rank{rank}.json").write_text(json.dumps(table))
    cast(Any, dist).barrier()
    dist.destroy_process_group()
    os._exit(0)
