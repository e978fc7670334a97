"""What a parallel module computes: on gloo processes in float64, against one process."""

# pyright: basic

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verifier.refute.scatter import piece

if TYPE_CHECKING:
    from agent.check.contract import Placed
    from benchmarks.check_mutants import Base

TOLERANCE = 1e-8
SECONDS = 25.0


def truth(base: Base, folder: Path, placed: Sequence[Placed]) -> tuple[str, str]:
    """`right`, `wrong` or `broken`, and what was seen. Layouts are those of the contract."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        out = Path(scratch)
        run([lambda: _one(base, folder, out)], out)
        ranks = range(base.mesh.size)
        said = run([lambda r=r: _rank(base, folder, out, placed, r) for r in ranks], out)
        if said:
            return "broken", said
        rows = [json.loads((out / f"rank-{r}.json").read_text()) for r in ranks]
    worst = max((d for row in rows for d in row), key=lambda d: d[1])
    word = "right" if worst[1] <= TOLERANCE else "wrong"
    return word, f"{worst[0]} differs by {worst[1]:.1e}"


def run(work: Sequence[Callable[[], None]], out: Path) -> str:
    """Do each in a process of its own; what went wrong in one."""
    pids: dict[int, int] = {}
    for index, do in enumerate(work):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if not pid:
            code = 1
            try:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 2)
                do()
                code = 0
            except BaseException:  # noqa: BLE001
                (out / f"failed-{index}").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        pids[pid] = index
    ends, said = time.monotonic() + SECONDS, ""
    while pids:
        for pid in list(pids):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                index = pids.pop(pid)
                if status:
                    file = out / f"failed-{index}"
                    lines = file.read_text().strip().splitlines() if file.is_file() else ["ended"]
                    said = said or lines[-1][:200]
        if said or time.monotonic() > ends:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            return said or "ranks wait for ever"
        time.sleep(0.01)
    return said


def _values(name: str, shape: Sequence[int]) -> np.ndarray:
    g = np.random.default_rng(sum(map(ord, name)))
    return g.standard_normal(tuple(shape))


def _given(base: Base) -> dict[str, np.ndarray]:
    from synthesis.frontends.torch.request import InputSpec

    out: dict[str, np.ndarray] = {}
    for spec in map(InputSpec.parse, base.inputs):
        if spec.dtype.startswith("i"):
            g = np.random.default_rng(5)
            out[spec.name] = g.integers(0, spec.below, tuple(spec.shape))
        else:
            out[spec.name] = _values(f"input {spec.name}", spec.shape)
    return out


def _outputs(found: Any) -> dict[str, Any]:
    if isinstance(found, Mapping):
        return dict(found)
    if isinstance(found, tuple):
        return {str(i): v for i, v in enumerate(found)}
    return {"output": found}


def _step(
    model: Any, given: Mapping[str, Any], cotangents: Callable[[str, Any], Any]
) -> dict[str, Any]:
    """Forward and backward; what comes out, by name."""
    import inspect

    import torch

    values = {k: v.requires_grad_() if v.is_floating_point() else v for k, v in given.items()}
    kinds = [p.kind for p in inspect.signature(model.forward).parameters.values()]
    plain = inspect.Parameter.VAR_POSITIONAL in kinds
    clones = {k: v.clone() for k, v in values.items()}
    outs = _outputs(model(*clones.values()) if plain else model(**clones))
    total = [(v, cotangents(k, v)) for k, v in outs.items()]
    torch.autograd.backward([v for v, _ in total], [c for _, c in total])
    got = {f"output {k}": v.detach() for k, v in outs.items()}
    got |= {f"input {k}": v.grad for k, v in values.items() if v.is_floating_point()}
    return got


def _one(base: Base, folder: Path, out: Path) -> None:
    import torch

    from synthesis.frontends.torch.target import import_file

    torch.set_default_dtype(torch.float64)
    file, _, name = base.against.partition(":")
    model = getattr(import_file(folder / file), name)().train()
    with torch.no_grad():
        for path, p in model.named_parameters():
            p.copy_(torch.from_numpy(_values(path, p.shape)))
    given = {k: torch.from_numpy(v) for k, v in _given(base).items()}

    def cotangent(key: str, v: Any) -> Any:
        whole = np.ones(()) if not v.shape else _values(f"cotangent {key}", v.shape)
        return torch.from_numpy(whole)

    got = _step(model, given, cotangent)
    got |= {f"grad {k}": p.grad for k, p in model.named_parameters()}
    shapes = {f"grad {k}": p.shape for k, p in model.named_parameters()}
    kept: Any = {
        k: v.numpy() if v is not None else np.zeros(shapes[k])
        for k, v in got.items()
        if v is not None or k in shapes
    }
    np.savez(out / "one.npz", **kept)


def _local(value: Any, like: Any = None) -> Any:
    from torch.distributed.tensor import DTensor

    if isinstance(value, DTensor):
        if like is not None and isinstance(like, DTensor):
            value = value.redistribute(placements=like.placements)
        return value.to_local()
    return value


def _rank(base: Base, folder: Path, out: Path, placed: Sequence[Placed], rank: int) -> None:
    import inspect

    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor

    from synthesis.frontends.torch.ranks.dtensors import layout_of
    from synthesis.frontends.torch.target import import_file

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    mesh = base.mesh
    dist.init_process_group(
        "gloo", init_method=f"file://{out}/store", rank=rank, world_size=mesh.size
    )
    _averages(dist)
    device = init_device_mesh("cpu", tuple(s for _, s in mesh.dims), mesh_dim_names=mesh.names)
    offered: dict[str, Any] = {"rank": rank, "world_size": mesh.size, "mesh": device}
    for name in mesh.names:
        offered[f"{name}_rank"] = device.get_local_rank(name)
        offered[f"{name}_size"] = mesh[name]
        offered[f"{name}_group"] = device.get_group(name)
    if len(mesh.names) == 1:
        offered["group"] = device.get_group()
    module = import_file(folder / base.file)
    make = getattr(module, base.name)
    takes = inspect.signature(make).parameters
    model = make(**{k: v for k, v in offered.items() if k in takes})
    model.train()
    at = mesh.coords()[rank]
    layouts = {(p.kind, p.name): p.layout for p in placed}
    own: dict[str, Any] = {}
    for path, p in model.named_parameters():
        name = path.removeprefix("module.")
        layout = (
            layout_of(p, mesh, rank, name) if isinstance(p, DTensor) else layouts["parameter", name]
        )
        own[name] = layout
        with torch.no_grad():
            _local(p).copy_(torch.from_numpy(piece(_values(name, layout.global_shape), layout, at)))
    given = {
        k: torch.from_numpy(piece(v, layouts["input", k], at).copy())
        for k, v in _given(base).items()
    }

    def cotangent(key: str, v: Any) -> Any:
        if not v.shape:
            return torch.ones((), dtype=torch.float64)
        layout = layouts["output", key]
        part = torch.from_numpy(
            piece(_values(f"cotangent {key}", layout.global_shape), layout, at).copy()
        )
        return (
            DTensor.from_local(part, v.device_mesh, v.placements)
            if isinstance(v, DTensor)
            else part
        )

    got = _step(model, given, cotangent)
    if base.after:
        getattr(module, base.after)(model)
    rows: list[tuple[str, float]] = []
    with np.load(out / "one.npz") as one:
        losses = any(k.startswith("output") and not one[k].shape for k in one.files)
        for key in one.files:
            what, _, name = key.partition(" ")
            if what == "input" and (losses or name in base.no_grad):
                continue
            if what == "grad":
                pairs = {k.removeprefix("module."): p for k, p in model.named_parameters()}
                p, layout = pairs[name], own[name]
                mine = _local(p.grad, p) if p.grad is not None else torch.zeros(layout.local_shape)
            elif what == "input":
                layout, mine = layouts["input", name], got[key]
                mine = torch.zeros(layout.local_shape) if mine is None else mine
            else:
                layout, mine = layouts["output", name], _local(got[key])
                if not mine.shape:
                    mine = mine.clone()
                    dist.all_reduce(mine)
                    mine /= mesh.size
            want = one[key] if not one[key].shape else piece(one[key], layout, at)
            made = mine.detach().numpy()
            rows.append((key, _difference(made, want)))
    (out / f"rank-{rank}.json").write_text(json.dumps(rows))
    dist.barrier()


def _difference(made: np.ndarray, want: np.ndarray) -> float:
    if made.shape != want.shape:
        return 1.0
    size = max(float(np.abs(want).max(initial=0)), 1.0)
    found = float(np.abs(made - want).max(initial=0)) / size
    return found if found == found else 1.0


def _averages(dist: Any) -> None:
    """Gloo has no AVG: it is a sum, divided."""
    plain, scatter = dist.all_reduce, dist.reduce_scatter_tensor

    def all_reduce(
        tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
    ) -> Any:
        if op != dist.ReduceOp.AVG:
            return plain(tensor, op=op, group=group, async_op=async_op)
        plain(tensor, group=group)
        return tensor.div_(dist.get_world_size(group)) and None

    def reduce_scatter_tensor(
        out: Any,
        tensor: Any,
        op: Any = dist.ReduceOp.SUM,
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        if op != dist.ReduceOp.AVG:
            return scatter(out, tensor, op=op, group=group, async_op=async_op)
        scatter(out, tensor, group=group)
        out.div_(dist.get_world_size(group))
        return None

    dist.all_reduce, dist.reduce_scatter_tensor = all_reduce, reduce_scatter_tensor
