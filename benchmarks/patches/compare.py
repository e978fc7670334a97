"""One process's part of a run: the reference, or one rank that compares itself with it."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode

from shardproof.synthesis.execute.child import fork, wait
from shardproof.synthesis.execute.job import Job
from shardproof.synthesis.execute.load import make_inputs, open_target, patched_model, rows
from shardproof.synthesis.frontends.torch.captured import load
from shardproof.synthesis.frontends.torch.inputs import find_inputs
from shardproof.synthesis.frontends.torch.modes import mode_of
from shardproof.synthesis.planner.plan import Plan

NOISE = 2e-5
"""The least that a gradient is measured by, as a share of the largest one. Where terms as large as
that cancel, float64 leaves some 2**-46 of them: a gradient of 0 then is one within 1e-9."""


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


def randomize(model: torch.nn.Module, seed: int, spread: float = 1.0) -> None:
    """Give every parameter values that a wrong rank or a wrong sum cannot hide behind.

    With `spread` they lie so many times further apart.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in dict.fromkeys(model.parameters()):
            noise = torch.randn(param.shape, generator=generator, dtype=torch.float64)
            scale = 0.3 / param.shape[-1] ** 0.5 if param.ndim > 1 else 0.1
            base = 1.0 if param.ndim < 2 and bool((param == 1).all()) else 0.0
            param.copy_(base + spread * scale * noise)


def named_outputs(output: Any) -> dict[str, torch.Tensor]:
    """Tensors of a model's result: fields of a ModelOutput, items of a tuple, or `output`."""
    if isinstance(output, torch.Tensor):
        return {"output": output}
    items = output.items() if hasattr(output, "items") else enumerate(output)
    return {str(k): v for k, v in items if isinstance(v, torch.Tensor)}


def step(
    model: torch.nn.Module, inputs: dict[str, Any], share: tuple[int, int], summed: bool = False
) -> dict[str, Any]:
    """Forward and backward; returns outputs and `loss` (detached).

    Without a scalar output the loss is a fixed random combination of the outputs. `share` is this
    rank's place among the data-parallel ranks and their number: the loss of one device is the mean
    of theirs, or where it is `summed` their sum.
    """
    index, count = share
    outputs = named_outputs(model(**inputs))
    scalars = [name for name, v in outputs.items() if v.ndim == 0 and v.is_floating_point()]
    if scalars:
        loss = outputs.pop(scalars[0])
    else:
        some = next(model.parameters())
        loss = torch.zeros((), dtype=some.dtype, device=some.device)
        for name, value in outputs.items():
            if value.is_floating_point():
                generator = torch.Generator().manual_seed(len(name))
                whole = (value.shape[0] * count, *value.shape[1:])
                weight = torch.randn(whole, generator=generator, dtype=torch.float64)
                part = (value * weight.chunk(count)[index].to(value)).sum()
                loss = loss + (part if summed else count * part)
    cast(Any, loss).backward()
    return {**{k: v.detach() for k, v in outputs.items()}, "loss": loss.detach()}


def reference_step(
    model: torch.nn.Module, inputs: dict[str, torch.Tensor], dtype: torch.dtype
) -> dict[str, Any]:
    """A step of the whole model on the whole batch: what the ranks are compared with.

    Returns `outputs` (with `loss`), `gradients` of parameters by name, `inputs`, `state` as it was
    before, and `buffers` as they are after it.
    """
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with Promote(dtype):
        outputs = step(model, inputs, (0, 1))
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    data = {"outputs": outputs, "gradients": gradients, "inputs": inputs}
    return {**data, "state": state, "buffers": dict(model.named_buffers())}


def reference_run(job: Job, folder: Path) -> None:
    """One process, the unpatched model: saves weights, inputs, outputs and gradients."""
    dtype = getattr(torch, job.dtype)
    cast(Any, torch).manual_seed(job.seed)
    target, _ = open_target(job.request)
    model = target.build().to(dtype)
    randomize(model, job.seed)
    inputs = make_inputs(find_inputs(job.request, target, model), job.seed, dtype)
    inputs = {name: value.to(job.device) for name, value in inputs.items()}
    with mode_of(model.to(job.device), job.train):
        data = reference_step(model, inputs, dtype)
    (folder / "loss.json").write_text(json.dumps(data["outputs"]["loss"].item()))
    torch.save(data, folder / "reference.pt")


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


def noise(gradients: Iterable[torch.Tensor]) -> float:
    """What a gradient is no smaller than, to be more than rounding: those without entries aside."""
    return NOISE * max((g.abs().max().item() for g in gradients if g.numel()), default=0.0)


def _part(want: torch.Tensor, got: torch.Tensor, ranks: tuple[int, int, int, int]) -> torch.Tensor:
    """The rows (and the vocabulary slice, where outputs stay sharded) that this rank holds."""
    dp, dp_size, tp, tp_size = ranks
    if want.ndim and got.shape[0] * dp_size == want.shape[0]:
        want = want.chunk(dp_size)[dp]
    for dim, extent in enumerate(got.shape):
        if extent * tp_size == want.shape[dim] and extent != want.shape[dim]:
            want = want.chunk(tp_size, dim)[tp]
    return want


def connect(plan: Plan, folder: Path, rank: int, size: int, device: str = "cpu") -> DeviceMesh:
    """Join the other ranks, who meet in `folder`; the mesh of the plan."""
    backend = "gloo"
    if device == "cuda":
        backend = "nccl"
        take_gpu(rank, size)
    dist.init_process_group(
        backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=size
    )
    sizes = tuple(extent for _, extent in plan.mesh.dims)
    return init_device_mesh(device, sizes, mesh_dim_names=plan.mesh.names)


def take_gpu(rank: int, size: int) -> None:
    """Set this rank's GPU. Where ranks share one, each is a host of its own to NCCL, which has them
    talk through sockets: on one host it wants a GPU for each."""
    found = torch.cuda.device_count()
    if size > found:
        os.environ |= {"NCCL_HOSTID": f"rank-{rank}", "NCCL_IB_DISABLE": "1"}
        os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    os.environ["LOCAL_RANK"] = str(rank % found)
    torch.cuda.set_device(rank % found)


def rank_step(
    job: Job, tree: Path, mesh: DeviceMesh, reference: dict[str, Any], summed: bool = False
) -> list[dict[str, Any]]:
    """This rank's part of a step of the patched model in `tree`, compared with the reference.

    The loss of one device is the mean of the data-parallel ranks' losses, or their sum.

    Raises:
        AssertionError: an output of another shape, a parameter without a gradient.
    """
    dtype, plan = getattr(torch, job.dtype), job.plan
    dp, tp = (mesh[dim].get_local_rank() if dim else 0 for dim in (plan.dp, plan.tp))
    dp_size, split = plan.batch_ranks, plan.tp_size if plan.loss_parallel else 1
    built, parallelize = patched_model(job, tree)
    model = built.to(dtype).to(job.device)
    model.load_state_dict(reference["state"])
    model = parallelize(model, mesh)
    inputs = rows(reference["inputs"], dp, dp_size)
    with Promote(dtype), mode_of(model, job.train):
        outputs = step(model, inputs, (dp, dp_size), summed)
    table: list[dict[str, Any]] = []
    loss = outputs.pop("loss").clone()
    if isinstance(loss, DTensor):
        loss = loss.full_tensor()
    if plan.dp:
        cast(Any, dist).all_reduce(loss, group=mesh.get_group(plan.dp))
    expected = dict(reference["outputs"])
    whole = expected.pop("loss")
    table.append(_row("loss", "loss", loss if summed else loss / dp_size, whole))
    for name, want in expected.items():
        got = outputs[name]
        got = got.full_tensor() if isinstance(got, DTensor) else got
        table.append(_row("output", name, got, _part(want, got, (dp, dp_size, tp, split))))
    held: dict[str, Any] = dict(model.named_buffers()) if job.train else {}
    for name, got in held.items():
        got = got.full_tensor() if isinstance(got, DTensor) else got
        table.append(_row("buffer", name, got, reference["buffers"][name]))
    floor = noise(reference["gradients"].values())
    got_by_name = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for name in {**reference["gradients"], **got_by_name}:
        got, want = got_by_name.get(name), reference["gradients"].get(name)
        if got is None:
            raise AssertionError(f"parameter {name} has no gradient")
        got = got.full_tensor() if isinstance(got, DTensor) else got
        want = torch.zeros_like(got) if want is None else want
        table.append(_row("gradient", name, got, want, floor))
    return table


def rank_run(job: Job, folder: Path, rank: int, size: int) -> None:
    """One rank: builds the patched model, parallelizes it, runs it, writes `rank<n>.json`."""
    mesh = connect(job.plan, folder, rank, size, job.device)
    reference = torch.load(folder / "reference.pt", job.device, weights_only=False)
    table = rank_step(job, folder / "tree", mesh, reference, job.plan.loss == "sum")
    (folder / f"rank{rank}.json").write_text(json.dumps(table))
    cast(Any, dist).barrier()
    dist.destroy_process_group()
    os._exit(0)


def run(folder: Path) -> None:
    """Reference first, then all ranks; leaves `result.json`."""
    job = _job(folder)
    wait([fork(lambda: reference_run(job, folder))])
    size = job.plan.mesh.size
    wait([fork(lambda rank=rank: rank_run(job, folder, rank, size)) for rank in range(size)])
    worst: dict[tuple[str, str], dict[str, object]] = {}
    for rank in range(size):
        for d in json.loads((folder / f"rank{rank}.json").read_text()):
            key = (d["kind"], d["name"])
            if key not in worst or d["relative"] > float(str(worst[key]["relative"])):
                worst[key] = d
    loss = json.loads((folder / "loss.json").read_text())
    (folder / "result.json").write_text(
        json.dumps({"differences": list(worst.values()), "loss": loss})
    )


def _job(folder: Path) -> Job:
    torch.set_num_threads(1)
    return load(Job, (folder / "job.json").read_text())
