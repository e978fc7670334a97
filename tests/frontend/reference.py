"""Runs a model in PyTorch in float64, to compare captured programs with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.overrides import TorchFunctionMode

from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.inputs import find_inputs
from shardproof.synthesis.frontends.torch.process import Job, run_job, workspace
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
from shardproof.synthesis.frontends.torch.results import named_outputs
from shardproof.synthesis.frontends.torch.rolling.paths import Group, members
from shardproof.synthesis.frontends.torch.session import prepare
from shardproof.synthesis.frontends.torch.target import TORCH_DTYPES, find

Arrays = Mapping[str, NDArray[Any]]
KINDS = ("inputs", "params", "outputs", "grads", "cotangents")
_NARROW = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Reference:
    """One forward and backward of the model by PyTorch, in float64."""

    inputs: Arrays
    params: Arrays
    """By first name; tied parameters once."""
    outputs: Arrays
    """By result name, the loss included."""
    grads: Arrays
    cotangents: Arrays
    """Where there is no scalar loss: what was passed back, by output name."""

    def values(self, captured: Captured) -> dict[str, NDArray[Any]]:
        """Inputs for the captured program: layers of repeated blocks are stacked."""
        out: dict[str, NDArray[Any]] = {}
        for item in captured.program.inputs:
            if item.role == "param":
                out[item.name] = stacked(self.params, item.path, captured.facts.groups)
            elif item.role == "const":
                out[item.name] = np.asarray(captured.consts[item.name])
            elif item.role == "cotangent":
                out[item.name] = self.cotangents[item.path]
            else:
                out[item.name] = self.inputs[item.path]
        return out

    def expected(self, captured: Captured) -> dict[str, NDArray[Any]]:
        """What the outputs of the captured program must be, by value name."""
        out: dict[str, NDArray[Any]] = {}
        for item in captured.program.outputs:
            if item.role == "grad":
                out[item.value] = stacked(self.grads, item.path, captured.facts.groups)
            else:
                out[item.value] = self.outputs[item.path]
        return out


def stacked(values: Arrays, path: str, groups: tuple[Group, ...]) -> NDArray[Any]:
    """The array of a path; for a pattern, those of its members, stacked."""
    if path in values:
        return values[path]
    return np.stack([values[p] for p in members(path, groups)])


def reference(request: CaptureRequest, seed: int = 0, train: bool = False) -> Reference:
    """Run the model in PyTorch, in float64 with random parameters, on random inputs, in a process
    of its own: forked by the server that captures. What buffers hold at the end is an output too.

    For small models: parameters are real. Casts to a narrower float are not done where they would
    round a value that depends on a parameter.
    """
    with workspace() as folder:
        (folder / "asked.json").write_text(json.dumps([request.to_json(), seed, train]))
        entry = f"{__name__}:save_reference"
        done = run_job(Job(entry, request.target, folder, wall_s=120))
        assert done.returncode == 0, f"{done.stopped} {done.output}"
        kinds: dict[str, dict[str, NDArray[Any]]] = {}
        for kind in KINDS:
            with np.load(folder / f"{kind}.npz", allow_pickle=False) as arrays:
                kinds[kind] = {k: arrays[k] for k in arrays.files}
    return Reference(**kinds)


class Wide(TorchFunctionMode):
    """Keeps float64 values that need a gradient in float64 where the model casts them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        x = args[0] if args else None
        if isinstance(x, torch.Tensor) and x.dtype == torch.float64 and x.requires_grad:
            if func in (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16):
                return x
            args = tuple(torch.float64 if _narrow(a) else a for a in args)
            if _narrow(kwargs.get("dtype")):
                kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def _narrow(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in _NARROW


def make_inputs(specs: tuple[InputSpec, ...], seed: int) -> dict[str, torch.Tensor]:
    """Random arguments: floats in float64, integers below their bound."""
    generator = torch.Generator().manual_seed(seed)
    out: dict[str, torch.Tensor] = {}
    for spec in specs:
        dtype = TORCH_DTYPES[spec.dtype]
        if dtype.is_floating_point:
            out[spec.name] = torch.randn(spec.shape, generator=generator, dtype=torch.float64)
        else:
            below = 2 if spec.dtype == "bool" else max(spec.below, 1)
            out[spec.name] = torch.randint(0, below, spec.shape, generator=generator).to(dtype)
    return out


def randomise(model: nn.Module, seed: int) -> None:
    """Give every parameter random values of moderate size, norms and biases included."""
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            p.copy_(noise * 0.2 + (1.0 if p.ndim == 1 else 0.0))


def save_reference(folder: Path) -> None:
    """Write inputs, params, outputs, grads and cotangents, one .npz each."""
    asked, seed, train = json.loads((folder / "asked.json").read_text())
    request = CaptureRequest.from_json(asked)
    torch.manual_seed(seed)
    target = find(request)
    model = prepare(target.build(), torch.float64, request.gradients)
    specs = find_inputs(request, target, model)
    inputs = make_inputs(specs, seed)
    randomise(model, seed)
    model.train(train)
    with Wide():
        named, loss = named_outputs(model(**inputs), target.result_names)
        cotangents: dict[str, torch.Tensor] = {}
        if loss is not None:
            dict(named)[loss].backward()
        elif request.gradients:
            generator = torch.Generator().manual_seed(seed + 2)
            wanted = [(n, t) for n, t in named if t.requires_grad]
            for name, t in wanted:
                cotangents[name] = torch.randn(t.shape, generator=generator, dtype=t.dtype)
            torch.autograd.backward([t for _, t in wanted], list(cotangents.values()))
    _save(folder / "inputs.npz", inputs)
    _save(folder / "params.npz", dict(model.named_parameters()))
    _save(folder / "outputs.npz", dict(model.named_buffers()) | dict(named))
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    _save(folder / "grads.npz", grads)
    _save(folder / "cotangents.npz", cotangents)


def _save(path: Path, values: dict[str, torch.Tensor]) -> None:
    arrays: Any = {k: v.detach().numpy() for k, v in values.items()}
    np.savez(path, **arrays)
