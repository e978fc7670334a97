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

from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.refute.scatter import piece

if TYPE_CHECKING:
    from benchmarks.check_mutants import Base
    from shardproof.agent.check.contract import Placed

TOLERANCE = 1e-8
SECONDS = 120.0


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
        with np.load(out / "one.npz") as one:
            wanted = {k for k in one.files if not k.startswith("input")}
    nowhere = wanted - {d[0] for row in rows for d in row}
    if nowhere:
        return "wrong", f"no rank has {min(nowhere)}"
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


def draws_of(base: Base) -> list[dict[str, np.ndarray]]:
    """Inputs, so many that every integer input takes all its values."""
    from shardproof.synthesis.frontends.torch.request import InputSpec

    specs = list(map(InputSpec.parse, base.inputs))
    g = np.random.default_rng(5)
    orders = {s.name: g.permutation(s.below) for s in specs if s.dtype.startswith("i")}
    sizes = [-(-s.below // int(np.prod(s.shape))) for s in specs if s.name in orders]
    out: list[dict[str, np.ndarray]] = []
    for number in range(max(sizes, default=1)):
        given: dict[str, np.ndarray] = {}
        for spec in specs:
            shape = tuple(spec.shape)
            if spec.name in orders:
                count = int(np.prod(shape))
                turned = np.roll(orders[spec.name], -number * count)
                given[spec.name] = np.resize(turned, count).reshape(shape)
            else:
                given[spec.name] = _values(f"input {spec.name} {number}", shape)
        out.append(given)
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


def _model(base: Base, folder: Path) -> Any:
    from shardproof.synthesis.frontends.torch.target import import_file

    file, _, name = base.against.partition(":")
    return getattr(import_file(folder / file), name)()


def _one(base: Base, folder: Path, out: Path) -> None:
    import torch

    torch.set_default_dtype(torch.float64)
    model = _model(base, folder).train()
    with torch.no_grad():
        for path, p in model.named_parameters():
            p.copy_(torch.from_numpy(_values(path, p.shape)))

    def cotangent(key: str, v: Any) -> Any:
        whole = np.ones(()) if not v.shape else _values(f"cotangent {key}", v.shape)
        return torch.from_numpy(whole)

    shapes = {f"grad {k}": p.shape for k, p in model.named_parameters()}
    kept: dict[str, Any] = {}
    for number, values in enumerate(draws_of(base)):
        model.zero_grad()
        got = _step(model, {k: torch.from_numpy(v) for k, v in values.items()}, cotangent)
        got |= {f"grad {k}": p.grad for k, p in model.named_parameters()}
        for k, v in got.items():
            if v is not None or k in shapes:
                kept[f"{k} {number}"] = v.numpy() if v is not None else np.zeros(shapes[k])
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

    from shardproof.synthesis.frontends.torch.ranks.dtensors import layout_of
    from shardproof.synthesis.frontends.torch.target import import_file

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    mesh = base.mesh
    dist.init_process_group(
        "gloo", init_method=f"file://{out}/store", rank=rank, world_size=mesh.size
    )
    _averages(dist)
    _late(dist)
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
    if "model" in takes:
        offered["model"] = _model(base, folder)
    model = make(**{k: v for k, v in offered.items() if k in takes})
    model = offered["model"] if model is None else model
    model = model if isinstance(model, torch.nn.Module) else Stages(model)
    model.train()
    at = mesh.coords()[rank]
    layouts = {(p.kind, p.name): p.layout for p in placed}
    own: dict[str, Any] = {}
    state: dict[str, Any] = {}
    for path, p in model.named_parameters():
        name = path.removeprefix("module.")
        layout = (
            layout_of(p, mesh, rank, name) if isinstance(p, DTensor) else layouts["parameter", name]
        )
        if not base.layouts and tuple(_local(p).shape) == layout.global_shape:
            layout = from_placements(layout.global_shape, [])  # as shapes say: every rank has all
        own[name] = layout
        state[name] = torch.from_numpy(_values(name, layout.global_shape))
        if not base.load:
            with torch.no_grad():
                _local(p).copy_(torch.from_numpy(piece(state[name].numpy(), layout, at)))
    if base.load:
        getattr(module, base.load)(model, state)

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

    rows: list[tuple[str, float]] = []
    with np.load(out / "one.npz") as one:
        for number, values in enumerate(draws_of(base)):
            given = {
                k: torch.from_numpy(piece(v, layouts["input", k], at).copy())
                for k, v in values.items()
            }
            for p in model.parameters():
                p.grad = None
            staged = isinstance(model, Stages)
            got = model.step(given) if staged else _step(model, given, cotangent)
            if base.after:
                getattr(module, base.after)(model)
            names = {k.removeprefix("module."): p for k, p in model.named_parameters()}
            wanted = {k: one[k] for k in one.files if k.endswith(f" {number}")}
            losses = any(k.startswith("output") and not v.shape for k, v in wanted.items())
            for key, want in wanted.items():
                what, name, _ = key.split(" ")
                if what == "input" and (losses or name in base.no_grad):
                    continue
                if staged and name not in names and f"{what} {name}" not in got:
                    continue
                if what == "grad":
                    p, layout = names[name], own[name]
                    zeros = torch.zeros(layout.local_shape)
                    mine = zeros if p.grad is None else _local(p.grad, p)
                elif what == "input":
                    layout, mine = layouts["input", name], got[f"input {name}"]
                    mine = torch.zeros(layout.local_shape) if mine is None else mine
                else:
                    layout, mine = layouts.get(("output", name)), _local(got[f"output {name}"])
                    if not mine.shape and not staged:
                        mine = mine.clone()
                        dist.all_reduce(mine)
                        mine /= mesh.size
                if want.shape:
                    want = piece(want, layout, at)
                rows.append((key, _difference(mine.detach().numpy(), want)))
    (out / f"rank-{rank}.json").write_text(json.dumps(rows))
    dist.barrier()


class Stages:
    """The stages of a rank in a pipeline, in place of a module."""

    def __init__(self, schedule: Any) -> None:
        self.schedule = schedule
        self.held = getattr(schedule, "_stages", None) or [schedule._stage]

    def named_parameters(self) -> list[tuple[str, Any]]:
        return [pair for stage in self.held for pair in stage.submod.named_parameters()]

    def parameters(self) -> list[Any]:
        return [p for _, p in self.named_parameters()]

    def train(self) -> None:
        for stage in self.held:
            stage.submod.train()

    def step(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A step of the schedule: the loss, where the rank has the last stage."""
        import torch

        first, *_, target = given.values()
        last = any(s.is_last for s in self.held)
        losses: list[Any] = []
        more: dict[str, Any] = {"target": target, "losses": losses} if last else {}
        self.schedule.step(*([first] if any(s.is_first for s in self.held) else ()), **more)
        return {"output output": torch.stack(losses).mean()} if last else {}


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
        tensor.div_(dist.get_world_size(group))
        return None

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


FLYING: list[Any] = []
"""What was started and may not have been waited for."""


class Late:
    """What a rank gets comes to be in its tensor when it waits for it, and not before."""

    def __init__(self, work: Any, made: Any, target: Any) -> None:
        self.work, self.made, self.target, self.waited = work, made, target, False
        FLYING.append(self)

    def wait(self) -> bool:
        import torch

        self.work.wait()
        self.waited = True
        with torch.no_grad():
            self.target.detach().copy_(self.made)
        return True


def _overlap(a: Any, b: Any) -> bool:
    """Whether they share memory, both being contiguous."""
    first, second = a.data_ptr(), b.data_ptr()
    return first < second + b.nbytes and second < first + a.nbytes


def _late(dist: Any) -> None:
    """A run in which no collective is done before it is waited for."""

    def put_off(plain: Any) -> Any:
        def call(target: Any, *args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("async_op"):
                return plain(target, *args, **kwargs)
            if any(_overlap(target, late.target) for late in FLYING if not late.waited):
                raise RuntimeError("memory of a collective in flight is given to another")
            made = target.detach().clone()
            return Late(plain(made, *args, **kwargs), made, target)

        return call

    for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"):
        setattr(dist, name, put_off(getattr(dist, name)))
